"""Prompt encoding: text encoders run once per prompt, and are in memory only while needed."""

import gc
import importlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

import diffusers
import torch
import transformers
from torch import nn

from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.embedding_cache import (
    LENGTHS,
    EmbeddingStore,
    PromptCache,
    TextEmbeddings,
    identity_of_files,
)
from rlfactory.model.pipelines.hub_models import no_bars
from rlfactory.model.pipelines.local_models import (
    ENCODERS,
    index_of,
    left_out,
    part_variant,
    plain_index,
)
from rlfactory.model.pipelines.modular import Kind, register
from rlfactory.model.pipelines.pipeline_loading import (
    copy_network,
    load_frozen,
    pipeline_folder,
)
from rlfactory.model.precision import Precision
from rlfactory.rollout import Condition
from rlfactory.utils.live_objects import is_reference
from rlfactory.utils.live_objects import resolve as live
from rlfactory.utils.pytree import to_device

log = logging.getLogger(__name__)

TOKENIZERS = ("tokenizer", "processor")
"""How names of components begin; a processor has a tokenizer, and reads pictures too."""


Encode = Callable[[list[str]], TextEmbeddings]
Visit = Callable[[], AbstractContextManager[None]]
"""A `with` in which the text encoders are on the device."""
Onloaded = Callable[[Any, torch.device], AbstractContextManager[None]]


def encode_once(
    prompts: Sequence[str],
    store: EmbeddingStore,
    encode: Encode,
    device: torch.device,
    visit: Visit = nullcontext,
) -> Condition:
    """One row for each prompt, on `device`; prompts that are not in `store` go through `encode`.

    A prompt is identified by its full text, even where an encoder truncates it. All new prompts
    are encoded within one `visit`.
    """
    stored = {prompt: store.get(prompt) for prompt in dict.fromkeys(prompts)}
    rows = {prompt: row for prompt, row in stored.items() if row is not None}
    rows |= encode_each([prompt for prompt in stored if prompt not in rows], store, encode, visit)
    embeddings = [rows[prompt] for prompt in prompts]
    stacked = {name: torch.stack([row[name] for row in embeddings]) for name in embeddings[0]}
    return Condition(
        {n: rows if n == LENGTHS else to_device(rows, device) for n, rows in stacked.items()}
    )


def encode_each(
    prompts: Iterable[str], store: EmbeddingStore, encode: Encode, visit: Visit
) -> Iterator[tuple[str, TextEmbeddings]]:
    """Encode prompts one by one within one visit of the encoders; yield what is stored."""
    new = iter(prompts)
    for first in new:  # there is no visit where there is no prompt
        with visit(), torch.no_grad():
            # One prompt at a time. A batch would be faster, but the last bits of a row depend on
            # the other rows of its batch, and a resumed run has other new prompts than an
            # uninterrupted one.
            for prompt in chain([first], new):
                rows = {name: tensor[0].cpu() for name, tensor in encode([prompt]).items()}
                store.put(prompt, rows)
                yield prompt, rows


class TextEncoders:
    """Encodes prompts for the pipeline of class `kind` at `path`, with a cache of embeddings.

    Created before the pipeline, because the cache decides whether the encoders are loaded at all:
    load the pipeline without the components in `left_out`, then call `attach`. `always` are prompts
    that every run needs, beside those of the cache (the negative prompt); `others` further
    components that an embedding depends on, which stay loaded, and `options` what else it does (the
    sequence length).
    """

    def __init__(
        self,
        kind: Kind,
        path: str,
        cache: PromptCache,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        *,
        always: Sequence[str] = (),
        others: Sequence[str] = (),
        **options: object,
    ) -> None:
        self.live = live(path) if is_reference(path) else None
        self.device, self.dtype = device, dtype
        if self.live is None:
            self.folder = pipeline_folder(kind, path)
            index = index_of(self.folder)
        else:  # nothing on the disk tells its embeddings from another's
            index, cache = plain_index(self.live.config), replace(cache, folder=None)
        absent = [] if self.live is not None else left_out(self.folder)
        there = [name for name, kind in index.items() if name not in absent and kind]
        parts = [name for name in there if name.startswith((*ENCODERS, *TOKENIZERS))]
        self.classes = {
            name: index[name] for name in parts if name.startswith(ENCODERS) and index[name][0]
        }
        self.store = cache.open(
            {
                "pipeline": kind.__name__,
                "path": path,
                "files": identity_of_files(self.folder, [*parts, *others])
                if cache.folder
                else None,
                "dtype": dtype,
                "device": device.type,
                "diffusers": diffusers.__version__,
                "transformers": transformers.__version__,
                **options,
            }
        )
        self.expected = cache.prompts
        self.rank, self.world_size = cache.rank, cache.world_size
        self.unloaded = bool(self.expected) and self.store.holds([*self.expected, *always])

    @property
    def left_out(self) -> dict[str, None]:
        """Components that the pipeline need not load, as keywords for `from_pretrained`."""
        return dict.fromkeys(self.classes if self.unloaded else ())

    def attach(self, pipe: Any, encode: Encode, onloaded: Onloaded) -> None:
        """Use the encoders of `pipe`, by which `encode` computes the rows of prompts, within
        `onloaded`, a `with` in which they are on a device.
        """
        self._pipe, self._encode, self._onloaded = pipe, encode, onloaded

    def __call__(self, prompts: Sequence[str]) -> Condition:
        """One row for each prompt, on the device."""
        return encode_once(prompts, self.store, self._encode, self.device, self._visit)

    def ahead(self, prompts: Sequence[str]) -> None:
        """Encode those of `prompts` that are new in one visit, as many as the store holds."""
        distinct = list(dict.fromkeys(prompts))
        new = self.store.missing(distinct)
        first_to_go = [*(prompt for prompt in distinct if prompt not in new), *new][:1]
        for _ in encode_each(new, self.store, self._encode, self._visit):
            # more would evict some that are wanted too
            if not self.store.holds(first_to_go):
                break

    @contextmanager
    def _visit(self) -> Iterator[None]:
        if self.unloaded:
            log.warning("a prompt is new: the text encoders are loaded again")
            register(self._pipe, **{name: self._load(name) for name in self.classes})
            self.unloaded = False
        with self._onloaded(self._pipe, self.device):
            yield

    def has_new_prompts(self) -> bool:
        """Whether `prepare` has prompts to encode."""
        return bool(self.expected) and not self.store.holds([*self.expected])

    def prepare(self) -> None:
        """Encode all expected prompts, then unload the encoders if all embeddings are stored.

        Without expected prompts (an endless source) the encoders stay loaded.
        """
        if not self.expected:
            return
        new = self.store.missing(self.expected)
        if new:
            log.info("%d of %d prompts are encoded", len(new), len(self.expected))
        for _ in encode_each(self._unshared(new), self.store, self._encode, self._visit):
            pass
        if self.store.holds(self.expected):
            self.unload()
        else:
            log.info("the text encoders stay loaded: not all embeddings fit into memory;")
            log.info("prompt_cache=FOLDER stores any number on disk")

    def _unshared(self, prompts: Sequence[str]) -> Iterator[str]:
        """`prompts` without those that other ranks store meanwhile in a folder that they share.

        Each rank begins at another place, so that together they encode each about once.
        """
        begin = len(prompts) * self.rank // self.world_size
        for prompt in [*prompts[begin:], *prompts[:begin]]:
            if not self.store.holds([prompt]):
                yield prompt

    def unload(self) -> None:
        """Free the encoders; the tokenizers, which are small, stay."""
        if self.unloaded:
            return
        register(self._pipe, **dict.fromkeys(self.classes))
        self.unloaded = True
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _load(self, name: str) -> nn.Module:
        if self.live is not None:
            loaded = copy_network(self.live.components[name], self.dtype)
        else:
            library, kind = self.classes[name]
            folder = self.folder / name
            with no_bars():
                loaded = getattr(importlib.import_module(library), kind).from_pretrained(
                    folder, dtype=self.dtype, variant=part_variant(folder)
                )
        return loaded.requires_grad_(False).eval().to(self.device)


def open_pipeline(
    kind: Kind,
    path: str,
    device: torch.device,
    precision: Precision,
    memory: Memory,
    cache: PromptCache,
    encode: Callable[[list[str]], TextEmbeddings],
    *,
    networks: Sequence[str] = (),
    trained_parts: Sequence[str],
    always: Sequence[str] = (),
    embedding_options: Mapping[str, object] | None = None,
    others: Sequence[str] = (),
    **components: object,
) -> tuple[Any, TextEncoders]:
    """The frozen pipeline, and its text encoders, not loaded if the cache has all prompts."""
    options = dict(embedding_options or {})
    texts = TextEncoders(
        kind, path, cache, device, precision.weights, always=always, others=others, **options
    )
    replaced = {**texts.left_out, **components}
    pipe = load_frozen(
        kind,
        path,
        device,
        precision,
        memory,
        networks=networks,
        trained_parts=trained_parts,
        **replaced,
    )
    texts.attach(pipe, encode, memory.encoding)
    return pipe, texts


def user_message(tokenizer: Any, prompt: str, **options: Any) -> str:
    """A prompt as a user's message, in a tokenizer's chat template."""
    messages = [{"role": "user", "content": prompt}]
    return tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **options
    )


Read = Callable[[str], tuple[object, bool]]
"""The tokens of a prompt that are read, and whether each encoder leaves out some."""


def prompt_reader(tokenizers: Sequence[Any], limit: int, written: Callable[[str], str]) -> Read:
    """A function that gives the text which a pipeline's tokenizers keep of a prompt, `written` with
    its family's template: as many tokens as the `limit` of its last encoder, CLIP's as many as
    their own.
    """

    def ids_and_limit(tokenizer: Any, prompt: str) -> tuple[list[int], int]:
        is_clip = type(tokenizer).__name__.startswith("CLIP")
        encode = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
        text = str(prompt if is_clip else written(prompt))
        ids = encode(text, truncation=False, verbose=False).input_ids
        return ids, int(tokenizer.model_max_length) if is_clip else limit

    @lru_cache(maxsize=10_000)  # a source may be endless
    def read(prompt: str) -> tuple[object, bool]:
        rows = [ids_and_limit(tokenizer, prompt) for tokenizer in tokenizers]
        # the last token that is read ends the text, wherever it was cut
        kept = tuple(tuple(ids[: most - 1]) for ids, most in rows)
        return kept, bool(rows) and all(len(ids) > most for ids, most in rows)

    return read


def report_cut(read: Read, prompts: Sequence[str]) -> None:
    """Say how many of the prompts are cut, and how many are equal after that."""
    distinct = list(dict.fromkeys(map(str, prompts)))
    cut = [prompt for prompt in distinct if read(prompt)[1]]
    if not cut:
        return
    copies = Counter(read(prompt)[0] for prompt in distinct)
    equal = sum(copies[read(prompt)[0]] > 1 for prompt in cut)
    log.warning(
        "%d of %d prompts are longer than the text encoder reads, and are cut, as %r...%s",
        *(len(cut), len(distinct), cut[0][:40]),
        f"; {equal} of them are equal to another one up to there" if equal else "",
    )
