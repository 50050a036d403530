import pytest
import torch
from transformers import DynamicCache, GPT2Config, MistralConfig
from transformers.cache_utils import DynamicSlidingWindowLayer

from rlfactory.model.lm.kv_cache import PreallocatedLayer, preallocated_cache

CONFIG = GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=5, bos_token_id=0, eos_token_id=0)


def states(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 2, count, 4), torch.randn(3, 2, count, 4)


def test_it_holds_what_transformers_own_cache_holds():
    ours, theirs = preallocated_cache(CONFIG, 9), DynamicCache(config=CONFIG)
    for count in (4, 1, 1, 3):
        for layer in range(2):
            key, value = states(count)
            found = ours.update(key, value, layer)
            expected = theirs.update(key, value, layer)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert ours.get_seq_length() == theirs.get_seq_length() == 9


def test_a_step_copies_nothing_but_its_own_token():
    layer = PreallocatedLayer(5)
    before, _ = layer.update(*states(2))
    after, _ = layer.update(*states(1))
    assert after.data_ptr() == before.data_ptr()


def test_rows_leave_it_as_they_leave_transformers_own():
    ours, theirs = preallocated_cache(CONFIG, 9), DynamicCache(config=CONFIG)
    rows = torch.tensor([0, 2])
    for count, batch in ((4, 3), (2, 2)):
        for layer in range(2):
            key, value = (x[:batch] for x in states(count))
            found, expected = ours.update(key, value, layer), theirs.update(key, value, layer)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
        if batch == 3:
            ours.batch_select_indices(rows)
            theirs.batch_select_indices(rows)


def test_more_than_there_is_room_for_is_refused():
    layer = PreallocatedLayer(2)
    with pytest.raises(RuntimeError):
        layer.update(*states(3))


def test_layers_that_forget_stay_as_they_are():
    config = MistralConfig(num_hidden_layers=1, sliding_window=4)
    assert isinstance(preallocated_cache(config, 9).layers[0], DynamicSlidingWindowLayer)
