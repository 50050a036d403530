"""Qwen2.5-VL: transformers' own logits and texts, on a tiny random model of the same classes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from PIL import Image
from tiny_language_models import save_vision_language_model
from torch import Tensor
from transformers import AutoModelForImageTextToText, Qwen2VLImageProcessorPil

import rlfactory as rl
from rlfactory.cli.app import dispatch
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.token import Token
from rlfactory.model.memory import Memory
from rlfactory.model.precision import Precision
from rlfactory.model.qwen25_vl import Qwen25VL
from rlfactory.prompts.ops.pictured import PicturedText, pictured
from rlfactory.run.metrics import read
from rlfactory.utils.errors import ModelError, UserError

CPU = torch.device("cpu")
CLOSE: dict[str, float] = {"atol": 2e-5, "rtol": 1e-4}


def picture(width: int, height: int, shift: int) -> Image.Image:
    colours = torch.arange(width * height * 3).view(height, width, 3) * 7 + shift * 50
    return Image.fromarray((colours % 256).to(torch.uint8).numpy())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vision_language_model(tmp_path_factory.mktemp("vision"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Qwen25VL:
    return Qwen25VL(CPU, path=str(folder), has_critic=False, text_role="auto")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()


PROMPTS = [
    pictured("What is it?", picture(24, 40, 0)),
    pictured("What is it?", picture(24, 40, 0)),
    pictured("What is it?", picture(48, 16, 1)),
    "A text",
    pictured("Who?", picture(24, 40, 2)),
]


def inputs(model: Qwen25VL, folder: Path, prompt: str) -> dict[str, Tensor]:
    """What transformers' processor makes of a message with a picture, without its class, which
    needs torchvision for videos.
    """
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    found: dict[str, Any] = {}
    if isinstance(prompt, PicturedText):
        processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
        found = dict(processor(images=[prompt.open()], return_tensors="pt"))
        count = int(found["image_grid_thw"].prod()) // 4
        mark = mark.replace("<|image_pad|>", "<|image_pad|>" * count)
    else:
        mark = ""
    message = {"role": "user", "content": f"{mark}{prompt!s}"}
    text = model.tokenizer.apply_chat_template(
        [message], tokenize=False, add_generation_prompt=True
    )
    ids = torch.tensor([model.tokenizer(text, add_special_tokens=False).input_ids])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **found}


def with_types(model: Qwen25VL, given: dict[str, Tensor]) -> dict[str, Tensor]:
    return given | {"mm_token_type_ids": (given["input_ids"] == model.pictures.placeholder).int()}


def rolled(model: Qwen25VL, prompts: list[str] = PROMPTS, length: int = 16, **options: Any) -> Any:
    ids, mask = model.encode(prompts)
    uniform = torch.rand(len(prompts), length, generator=torch.Generator().manual_seed(1))
    return model.rollout(ids, mask, Token(length=length, **options), uniform).measured()


def test_logits_are_transformers_own_for_pictures_of_several_sizes_and_texts(
    model: Qwen25VL, folder: Path, theirs: Any
) -> None:
    tokens = rolled(model)
    logits, _ = model.forward(tokens)
    assert {*tokens.lengths[:, 0].tolist()} >= {25, 40}  # widths differ, and one has no picture
    start = 0
    for row, prompt in enumerate(PROMPTS):
        given = inputs(model, folder, prompt)
        response = tokens.response[row][tokens.mask[row]]
        whole = torch.cat([given["input_ids"], response[None]], dim=1)
        width = given["input_ids"].shape[1]
        own = {**given, "input_ids": whole, "attention_mask": torch.ones_like(whole)}
        with torch.no_grad():
            expected = theirs(**with_types(model, own)).logits[0, width - 1 : -1]
        found = logits[start : start + len(response)].detach()
        torch.testing.assert_close(found, expected, **CLOSE)
        start += len(response)


@pytest.mark.parametrize("row", [0, 2, 3])
def test_a_greedy_rollout_is_generate(row: int, model: Qwen25VL, folder: Path, theirs: Any) -> None:
    tokens = rolled(model, length=12, top_k=1)
    given = with_types(model, inputs(model, folder, PROMPTS[row]))
    written = theirs.generate(**given, do_sample=False, max_new_tokens=12)
    expected = written[0, given["input_ids"].shape[1] :]
    assert tokens.response[row][tokens.mask[row]].tolist() == expected.tolist()


def test_the_picture_changes_the_answer_and_equal_ones_are_read_once(model: Qwen25VL) -> None:
    ids, mask = model.encode(PROMPTS)
    assert torch.equal(ids[0], ids[1])
    assert int(ids[0].max()) > model.rows
    alike = [PROMPTS[0], pictured("What is it?", picture(24, 40, 3))]
    first, second = rolled(model, alike, top_k=1).log_prob
    assert not torch.equal(first, second)
    keys = rolled(model).prompt_keys.tolist()
    assert keys[0] == keys[1]
    assert len({*keys}) == 4
    assert model.shares_prompts


def test_the_first_ratio_is_one_and_a_shared_prompt_changes_nothing(
    model: Qwen25VL, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = rolled(model, [PROMPTS[0]] * 6, 8)
    shared = model.token_log_probs(tokens, Token())[0].detach()
    torch.testing.assert_close(shared, tokens.log_prob[tokens.mask], **CLOSE)
    again = model.token_log_probs(tokens, Token())[0].detach()
    assert torch.equal(shared, again)
    monkeypatch.setattr(Qwen25VL, "shares_prompts", False)
    alone = model.token_log_probs(tokens, Token())[0].detach()
    torch.testing.assert_close(shared, alone, **CLOSE)


def test_gradient_checkpointing_gives_the_same_gradient(folder: Path) -> None:
    gradients = []
    for recomputes in (False, True):
        model = Qwen25VL(
            CPU, 0, None, Memory(gradient_checkpointing=recomputes), False, path=str(folder)
        )
        tokens = rolled(model, PROMPTS[:3], 6)
        model.token_log_probs(tokens, Token())[0].sum().backward()
        gradients.append([p.grad for p in model.weights.parameters.values()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def test_the_vision_tower_is_frozen(folder: Path, model: Qwen25VL) -> None:
    assert not [name for name in model.weights.parameters if "visual" in name]
    assert any("embed_tokens" in name for name in model.weights.parameters)
    for targets in (None, "all-linear", ["gate_proj", "q_proj"]):
        adapted = Qwen25VL(
            CPU, has_critic=False, path=str(folder), finetune="lora", lora_targets=targets
        )
        assert adapted.lora is not None
        assert all("language_model" in name for name in adapted.weights.parameters)


def test_adapters_open_in_peft(folder: Path, tmp_path: Path) -> None:
    model = Qwen25VL(CPU, has_critic=False, path=str(folder), finetune="lora", text_role="auto")
    with torch.no_grad():
        for name, parameter in model.weights.parameters.items():
            if "lora_B" in name:
                parameter.add_(0.05)
    model.export(tmp_path)
    base = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    opened = PeftModel.from_pretrained(base, str(tmp_path)).eval()
    tokens = rolled(model, PROMPTS[:1], 6)
    given = inputs(model, folder, PROMPTS[0])
    whole = torch.cat([given["input_ids"], tokens.response], dim=1)
    own = {**given, "input_ids": whole, "attention_mask": torch.ones_like(whole)}
    with torch.no_grad():
        logits = opened(**with_types(model, own)).logits[0, given["input_ids"].shape[1] - 1 : -1]
    torch.testing.assert_close(model.forward(tokens)[0].detach(), logits, **CLOSE)
    assert Qwen2VLImageProcessorPil.from_pretrained(tmp_path).patch_size == 4


def test_a_merged_export_is_a_folder_of_the_same_kind(folder: Path, tmp_path: Path) -> None:
    model = Qwen25VL(CPU, has_critic=False, path=str(folder), text_role="auto")
    with torch.no_grad():
        model.weights.parameters["lm_head.weight"].mul_(1.5)
    values = {name: p.detach().clone() for name, p in model.weights.parameters.items()}
    expected = rolled(model, length=6)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    model.export(tmp_path / "a", values)
    model.export_merged(tmp_path / "b")
    for name in "ab":
        again = Qwen25VL(CPU, has_critic=False, path=str(tmp_path / name), text_role="auto")
        assert torch.equal(rolled(again, length=6).log_prob, expected.log_prob)


def test_max_pixels_scales_pictures_down(folder: Path, model: Qwen25VL) -> None:
    small = Qwen25VL(CPU, has_critic=False, path=str(folder), max_pixels=256, text_role="auto")
    found = [int(m.encode([PROMPTS[0]])[1].sum()) for m in (model, small)]
    assert found[0] - found[1] == 15 - 2  # 24 x 40 pixels, and 8 x 16, in tokens of 8 x 8


def test_a_teacher_reads_with_its_own_vision_tower(folder: Path, model: Qwen25VL) -> None:
    teacher = model.frozen(str(folder))
    assert teacher.pictures is not model.pictures
    with torch.no_grad():
        teacher.network.base_model.visual.merger.mlp[2].weight.mul_(2)
    tokens = rolled(model)
    one, other = (m.token_log_probs(tokens, Token())[0].detach() for m in (model, teacher))
    assert not torch.allclose(one, other)


def test_a_mark_in_a_text_is_refused(model: Qwen25VL) -> None:
    with pytest.raises(ModelError, match="no picture, and as the model is given it 1 marks"):
        model.encode(["What is <|image_pad|>?"])
    with pytest.raises(ModelError, match="one picture, and as the model is given it 2 marks"):
        model.encode([pictured("What is <|image_pad|>?", picture(24, 24, 0))])
    with pytest.raises(ModelError, match="aspect ratio must be smaller than 200"):
        model.encode([pictured("What?", picture(401, 2, 0))])


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of prompts, of which one has no picture."""
    file = tmp_path_factory.mktemp("data") / "questions.jsonl"
    rows: list[dict[str, str]] = [{"prompt": "And now?", "answer": "1"}]
    for i in range(5):
        picture(16 + 8 * (i % 3), 16 + 8 * (i % 2), i).save(file.parent / f"{i}.png")
        rows.append({"prompt": "What is it?", "image": f"{i}.png", "answer": str(i)})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def words(folder: Path, questions: Path) -> list[str]:
    return [
        *("model=qwen25_vl", f"model.path={folder}", "algo=grpo_token", "hardware=cpu"),
        *("prompts=file", f"prompts.path={questions}", "reward=regex"),
        *("reward.match=search", "reward.pattern='[a-m]'"),
        *("prompts_per_iteration=3", "group_size=8", "iterations=2", "dynamics.length=16"),
        *("updates_per_iteration=1", "micro_batch=4", "evaluation.prompts=3", "checkpoint.every=1"),
        *("model.lora_rank=2", "algo.old_log_probs=recomputed"),
    ]


@pytest.fixture(scope="module")
def run(folder: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "one"
    rl.train(*words(folder, questions), run_dir=path)
    return path


def test_two_iterations_of_grpo(run: Path) -> None:
    records = [record for record in read(run / "metrics.jsonl") if "grad/norm" in record]
    assert len(records) == 2
    assert all(record["ratio/first_max_dev"] == 0 for record in records)
    assert all(record["ratio/sampled_max_dev"] < 1e-5 for record in records)
    assert any(record["grad/norm"] > 0 for record in records)


def test_a_run_that_was_killed_resumes_to_the_same_bits(
    run: Path, folder: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, calls = Qwen25VL.encode, []

    def killed(self: Qwen25VL, prompts: Any) -> Any:
        calls.append(len(prompts))
        if len(calls) == 3:  # the first evaluation and iteration are over
            raise RuntimeError("killed")
        return encode(self, prompts)

    other = tmp_path / "two"
    with monkeypatch.context() as patch:
        patch.setattr(Qwen25VL, "encode", killed)
        with pytest.raises(RuntimeError, match="killed"):
            rl.train(*words(folder, questions), run_dir=other)
    assert dispatch(["resume", str(other)]) == 0
    exports = []
    for path in (run, other):
        to = tmp_path / path.name / "adapters"
        assert dispatch(["export", str(path), "--to", str(to)]) == 0
        exports.append((to / "adapter_model.safetensors").read_bytes())
    assert exports[0] == exports[1]


def test_the_printed_code_draws_from_an_export(run: Path, tmp_path: Path, capfd: Any) -> None:
    assert dispatch(["export", str(run), "--merge", "--to", str(tmp_path / "merged")]) == 0
    code = capfd.readouterr().out.partition("to load it:")[2]
    assert "AutoModelForImageTextToText" in code
    exec(compile(code, "printed", "exec"), {})
    assert "<|im_start|>" in capfd.readouterr().out


def test_sample_takes_a_picture(run: Path, questions: Path, tmp_path: Path, capsys: Any) -> None:
    picked = ["--prompt", "What is it?", "--image", str(questions.parent / "1.png")]
    assert dispatch(["sample", str(run), *picked, "--out", str(tmp_path / "drawn")]) == 0
    assert "<|image_pad|>" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "drawn" / "samples.json").read_text())["samples"]) == 1


def test_check_and_estimate(folder: Path, questions: Path, capsys: Any) -> None:
    given = words(folder, questions)
    for command in (["check", *given], ["check", f"model={folder}", *given[2:]]):
        assert dispatch(command) == 0
        assert "peak memory" in capsys.readouterr().out
    few = ("prompts_per_iteration=1", "group_size=4", "dynamics.length=4", "evaluation.prompts=1")
    assert dispatch(["estimate", *given, *few]) == 0
    assert "parameters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("prompts.image_column=pictures", "prompts.image_column=image"),
        ("model.long_prompts=cut", "model.long_prompts=drop"),
        ("model.value_path=elsewhere", "value_path"),
        ("engine=transformers", "engine=own"),
    ],
)
def test_what_does_not_fit_is_said_in_the_plan(
    change: str, message: str, folder: Path, questions: Path
) -> None:
    with pytest.raises(PlanError, match=message):
        rl.plan(*words(folder, questions), change)


def test_a_model_of_texts_takes_no_pictures(questions: Path) -> None:
    given = [word for word in words(Path(), questions) if not word.startswith("model")]
    with pytest.raises(PlanError, match=r"model=qwen25_vl does[^$]*prompts.image_column=null"):
        rl.plan("model=tiny_gpt2", *given)


def test_bad_files_are_said_in_the_plan(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"prompt": "What?", "image": "absent.png"}\n' * 4)
    with pytest.raises(PlanError, match="there is no picture"):
        rl.plan(*words(folder, file))
    texts = tmp_path / "q.txt"
    texts.write_text("One\nTwo\n")
    with pytest.raises(PlanError, match=r"no prompt has a picture[^$]*prompts.image_column=null"):
        rl.plan(*words(folder, texts))
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (other / name).write_bytes((folder / name).read_bytes())
    given = [*words(other, texts), "prompts.image_column=null"]
    with pytest.raises(PlanError, match=r"no preprocessor_config.json"):
        rl.plan(*given)
    config = json.loads((other / "config.json").read_text())
    for changed, message in (
        ({**config, "model_type": "qwen3"}, "no Qwen2.5-VL"),
        ({k: v for k, v in config.items() if k != "vision_config"}, "no vision_config"),
    ):
        (other / "config.json").write_text(json.dumps(changed))
        with pytest.raises(PlanError, match=message):
            rl.plan(*given)


def test_another_adapter_names_this_one(folder: Path) -> None:
    with pytest.raises(PlanError, match="which model=qwen25_vl is for"):
        rl.plan("model=causal_lm", f"model.path={folder}")


@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_half_precision_reads_pictures_too(finetune: Any, folder: Path) -> None:
    half: Any = {"weights": "bfloat16", "rollout": "bfloat16", "learning": "bfloat16"}
    model = Qwen25VL(CPU, 0, Precision(**half), path=str(folder), finetune=finetune)
    tokens = rolled(model)
    found, values = model.token_log_probs(tokens, Token())
    assert (found - tokens.log_prob[tokens.mask]).abs().max() < 0.1
    (found.sum() + values.sum()).backward()


def test_a_conversation_takes_no_picture(folder: Path, questions: Path, tmp_path: Path) -> None:
    row = {"prompt": [{"role": "user", "content": "Hi"}], "image": f"{questions.parent}/1.png"}
    (tmp_path / "chat.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match="a picture goes with a text"):
        rl.train(*words(folder, tmp_path / "chat.jsonl"), run_dir=tmp_path / "run")
