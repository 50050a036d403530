"""Inputs that no text can hold: models, tokenizers, pipelines and adapters as strangers save them.

Each function takes the path that it writes, and is named by the cases that need it.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from rlfactory.model.pipelines.shipped import zoo_path


def _copy(name: str, folder: Path) -> Path:
    """A shipped model as a folder of its own, unless that is there."""
    return folder if folder.exists() else Path(shutil.copytree(zoo_path(name), folder))


def _change(file: Path, **values: Any) -> None:
    """Set keys of a JSON file; None removes one."""
    content = json.loads(file.read_text()) if file.is_file() else {}
    content = {k: v for k, v in {**content, **values}.items() if v is not None}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


def causal_lm(folder: Path) -> None:
    _copy("tiny_gpt2", folder)


def chat_lm(folder: Path) -> None:
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    _change(_copy("tiny_gpt2", folder) / "tokenizer_config.json", chat_template=template)


def lm_without_tokenizer(folder: Path) -> None:
    for file in _copy("tiny_gpt2", folder).glob("tokenizer*"):
        file.unlink()


def lm_of_a_tokenizer_alone(folder: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (_copy("tiny_gpt2", folder) / name).unlink()


def lm_without_weights(folder: Path) -> None:
    (_copy("tiny_gpt2", folder) / "model.safetensors").unlink()


def lm_without_a_shard(folder: Path) -> None:
    first, second = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    (_copy("tiny_gpt2", folder) / "model.safetensors").rename(folder / first)
    _change(folder / "model.safetensors.index.json", weight_map={"a": first, "b": second})


def lm_in_bin(folder: Path) -> None:
    file = _copy("tiny_gpt2", folder) / "model.safetensors"
    torch.save(load_file(file), folder / "pytorch_model.bin")
    file.unlink()


def lm_in_fp16_variant(folder: Path) -> None:
    file = _copy("tiny_gpt2", folder) / "model.safetensors"
    file.rename(folder / "model.fp16.safetensors")


def lm_with_old_index(folder: Path) -> None:
    """The index of .bin files that a download left out."""
    map_of = {"a": "pytorch_model-00001-of-00001.bin"}
    _change(_copy("tiny_gpt2", folder) / "pytorch_model.bin.index.json", weight_map=map_of)


def lm_cut_short(folder: Path) -> None:
    file = _copy("tiny_gpt2", folder) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100_000])


def lm_as_lfs_pointer(folder: Path) -> None:
    file = _copy("tiny_gpt2", folder) / "model.safetensors"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def lm_adapter(folder: Path) -> None:
    base = "Qwen/Qwen3-0.6B"
    _change(folder / "adapter_config.json", base_model_name_or_path=base, peft_type="LORA")
    (folder / "adapter_model.safetensors").touch()


def lm_in_gguf(folder: Path) -> None:
    folder.mkdir()
    (folder / "a-chat-model.gguf").write_bytes(b"GGUF")


def lm_in_two_gguf(folder: Path) -> None:
    lm_in_gguf(folder)
    (folder / "b.gguf").write_bytes(b"GGUF")


def gguf_file(file: Path) -> None:
    file.write_bytes(b"GGUF")


def encoder(folder: Path) -> None:
    file = _copy("tiny_gpt2", folder) / "config.json"
    _change(file, model_type="bert", architectures=["BertForMaskedLM"])


def seq2seq(folder: Path) -> None:
    kind = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}
    _change(_copy("tiny_gpt2", folder) / "config.json", is_encoder_decoder=True, **kind)


def classifier(folder: Path) -> None:
    _copy("sentiment", folder)


def vision(folder: Path) -> None:
    file = _copy("tiny_gpt2", folder) / "config.json"
    _change(file, model_type="vit", architectures=["ViTForImageClassification"])


def gptq(folder: Path) -> None:
    method = {"quant_method": "gptq", "bits": 4}
    _change(_copy("tiny_gpt2", folder) / "config.json", quantization_config=method)


def own_code(folder: Path) -> None:
    classes = {"AutoModelForCausalLM": "modeling_mine.MineForCausalLM"}
    names = {"architectures": ["MineForCausalLM"], "model_type": "mine", "auto_map": classes}
    _change(_copy("tiny_gpt2", folder) / "config.json", **names)


def other_weights(folder: Path) -> None:
    """A network without half of its weights."""
    file = _copy("tiny_gpt2", folder) / "model.safetensors"
    kept = {k: v for k, v in load_file(file).items() if ".h.1." not in k and ".h.0." not in k}
    save_file(kept, file, {"format": "pt"})


def _as_variant(folder: Path, parts: str) -> None:
    for file in sorted(folder.glob(f"{parts}/*.safetensors")):
        file.rename(file.with_name(file.name.replace(".safetensors", ".fp16.safetensors")))


def pipeline(folder: Path) -> None:
    _copy("tiny_sd3", folder)


def sd_pipeline(folder: Path) -> None:
    _copy("tiny_sd", folder)


def fp16_variants(folder: Path) -> None:
    _as_variant(_copy("tiny_sd3", folder), "*")


def mixed_halves(folder: Path) -> None:
    _as_variant(_copy("tiny_sd3", folder), "t*")


def without_t5(folder: Path) -> None:
    for name in ("text_encoder_3", "tokenizer_3"):
        shutil.rmtree(_copy("tiny_sd3", folder) / name)
    _change(folder / "model_index.json", text_encoder_3=[None, None], tokenizer_3=[None, None])


def t5_unnamed(folder: Path) -> None:
    without_t5(folder)
    _change(folder / "model_index.json", text_encoder_3=None, tokenizer_3=None)


def t5_lost(folder: Path) -> None:
    shutil.rmtree(_copy("tiny_sd3", folder) / "text_encoder_3")


def _scheduler(folder: Path, name: str, **values: Any) -> None:
    _change(_copy("tiny_sd", folder) / "model_index.json", scheduler=["diffusers", name])
    _change(folder / "scheduler" / "scheduler_config.json", _class_name=name, **values)


def v_prediction(folder: Path) -> None:
    _scheduler(folder, "DDIMScheduler", prediction_type="v_prediction")


def euler(folder: Path) -> None:
    _scheduler(folder, "EulerDiscreteScheduler")


def dpm_solver(folder: Path) -> None:
    _scheduler(folder, "DPMSolverMultistepScheduler")


def edm(folder: Path) -> None:
    betas = dict.fromkeys(("beta_start", "beta_end", "beta_schedule", "trained_betas"))
    _scheduler(folder, "EDMEulerScheduler", sigma_min=0.002, **betas)


def safety_checker_lost(folder: Path) -> None:
    names = {"safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"]}
    names["feature_extractor"] = ["transformers", "CLIPImageProcessor"]
    _change(_copy("tiny_sd", folder) / "model_index.json", **names)


def vae_lost(folder: Path) -> None:
    shutil.rmtree(_copy("tiny_sd", folder) / "vae")


def vae_unnamed(folder: Path) -> None:
    _change(_copy("tiny_sd", folder) / "model_index.json", vae=[None, None])


def encoder_empty(folder: Path) -> None:
    next((_copy("tiny_sd", folder) / "text_encoder").glob("*.safetensors")).unlink()


def unet_cut_short(folder: Path) -> None:
    file = next((_copy("tiny_sd", folder) / "unet").glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:100_000])


def null_part(folder: Path) -> None:
    file = _copy("tiny_sd3", folder) / "model_index.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "text_encoder_3": None}))


def cascade(folder: Path) -> None:
    _change(_copy("tiny_sd", folder) / "model_index.json", _class_name="StableCascadePipeline")


def sana_sprint(folder: Path) -> None:
    _change(_copy("tiny_sd", folder) / "model_index.json", _class_name="SanaSprintPipeline")


def inpainting(folder: Path) -> None:
    name = "StableDiffusionInpaintPipeline"
    _change(_copy("tiny_sd", folder) / "model_index.json", _class_name=name)
    _change(folder / "unet" / "config.json", in_channels=33)


def single_file(file: Path) -> None:
    shutil.copy(next((zoo_path("tiny_sd") / "unet").glob("*.safetensors")), file)
