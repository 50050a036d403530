"""Inputs that no text can hold: models, tokenizers, pipelines and adapters as strangers save them.

Each function takes the path that it writes, and is named by the cases that need it.
"""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, save_file
from tiny_language_models import save_language_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlfactory.model.pipelines.shipped import zoo_path


def of_sd3(path: Path, prefix: str, blocks: int = 4, width: int = 128) -> None:
    """Adapters of the queries and keys of `tiny_sd3`, by PEFT's names."""
    state = {}
    for block in range(blocks):
        for kind in "qk":
            key = f"{prefix}transformer_blocks.{block}.attn.to_{kind}"
            state[f"{key}.lora_A.weight"] = torch.full((4, width), 0.01)
            state[f"{key}.lora_B.weight"] = torch.full((width, 4), 0.1)
    save_file(state, path)


def diffusers_file(path: Path) -> None:
    """Of diffusers, without a word on alpha."""
    of_sd3(path, "transformer.")


def ai_toolkit_file(path: Path) -> None:
    """Diffusers' modules under ai-toolkit's prefix."""
    of_sd3(path, "diffusion_model.")


def default_file(path: Path) -> None:
    """PEFT's own state dict, with the adapter's name in each."""
    of_sd3(path, "base_model.model.")
    state = {k.replace(".weight", ".default.weight"): v for k, v in load_file(path).items()}
    save_file(state, path)


def wide_file(path: Path) -> None:
    """Of the same family and another width."""
    of_sd3(path, "transformer.", width=256)


def first_block_file(path: Path) -> None:
    """Of the first block alone."""
    of_sd3(path, "transformer.", blocks=1)


def original_file(path: Path) -> None:
    """Names of the original code of a network, in which query, key and value are one layer."""
    a, b = torch.zeros(4, 16), torch.zeros(48, 4)
    key = "diffusion_model.double_blocks.0.img_attn.qkv"
    save_file({f"{key}.lora_A.weight": a, f"{key}.lora_B.weight": b}, path)


def kohya_file(path: Path) -> None:
    """Of kohya's scripts."""
    key = "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_q"
    ups = {f"{key}.lora_down.weight": torch.zeros(4, 8), f"{key}.lora_up.weight": torch.zeros(8, 4)}
    save_file({**ups, f"{key}.alpha": torch.tensor(2.0)}, path)


def dora_file(path: Path) -> None:
    """With DoRA's magnitudes."""
    of_sd3(path, "transformer.")
    magnitude = {"transformer.transformer_blocks.0.attn.to_q.lora_magnitude_vector": torch.ones(8)}
    save_file({**load_file(path), **magnitude}, path)


def of_gpt2(path: Path, config: str, **more: Tensor) -> None:
    """A folder of PEFT with adapters of the attention of `tiny_gpt2`."""
    path.mkdir()
    state: dict[str, Tensor] = {}
    for block in range(4):
        key = f"base_model.model.transformer.h.{block}.attn.c_attn"
        state[f"{key}.lora_A.weight"] = torch.full((4, 256), 0.02)
        state[f"{key}.lora_B.weight"] = torch.full((768, 4), 0.02)
    save_file({**state, **more}, path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text(config)


def prompt_tuning(path: Path) -> None:
    """Virtual tokens, as PEFT saves them."""
    path.mkdir()
    save_file({"prompt_embeddings": torch.zeros(4, 256)}, path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text('{"peft_type": "PROMPT_TUNING"}')


def peft_folder(path: Path) -> None:
    """As PEFT saves it, with a regular expression for its targets."""
    of_gpt2(path, '{"lora_alpha": 6, "target_modules": "(?:.*)c_attn"}')


def rslora_folder(path: Path) -> None:
    """Scaled by alpha over the root of the rank."""
    of_gpt2(path, '{"lora_alpha": 6, "use_rslora": true}')


def patterns_folder(path: Path) -> None:
    """Alphas by layer."""
    of_gpt2(path, '{"lora_alpha": 6, "alpha_pattern": {"h.0.attn.c_attn": 12}}')


def saved_modules_folder(path: Path) -> None:
    """With a whole matrix beside the adapters."""
    more = {"base_model.model.lm_head.weight": torch.zeros(8, 8)}
    of_gpt2(path, '{"lora_alpha": 6, "modules_to_save": ["lm_head"]}', **more)


def whole_model(path: Path) -> None:
    """A model that ships, as a folder of its own."""
    path.symlink_to(zoo_path("tiny_gpt2"))


def padded_vocabulary(folder: Path) -> None:
    """A model with ten more ids than its tokenizer has tokens, which it finds likeliest."""
    save_language_model(folder, "llama", vocabulary=270)
    network = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        network.get_output_embeddings().weight[260:] *= 30
    network.save_pretrained(folder)


def vocabulary_with_holes(folder: Path) -> None:
    """A model whose special tokens come after five ids that no token has."""
    padded_vocabulary(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for token in tokenizer["added_tokens"]:
        token["id"] += 5
        tokenizer["model"]["vocab"][token["content"]] = token["id"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def no_padding_token(folder: Path) -> None:
    """A model whose tokenizer has no padding token."""
    save_language_model(folder, "llama")


def added_token(folder: Path) -> None:
    """A tokenizer with a token `<new>`, for which the model has no row."""
    save_language_model(folder, "qwen3", vocabulary=259)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<other>", "<new>"])
    tokenizer.save_pretrained(folder)


def padding_without_a_row(folder: Path) -> None:
    """A tokenizer whose padding token was added without a row."""
    save_language_model(folder, "qwen3", vocabulary=259)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(folder)


def no_end(folder: Path) -> None:
    """A tokenizer without an end of text."""
    save_language_model(folder, "llama")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["eos_token"]
    path.write_text(json.dumps(config))


def end_without_a_row(folder: Path) -> None:
    """A model of the bytes alone, whose tokenizer ends texts with a token of its own."""
    save_language_model(folder, "qwen3", vocabulary=256)


def weights_of_nan(folder: Path) -> None:
    """A model with a row of its embedding that is no number, of a token that is rare."""
    save_language_model(folder, "llama")
    network = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        network.get_input_embeddings().weight[200] = torch.nan
    network.save_pretrained(folder)


def latin_1_table(path: Path) -> None:
    """A table as old programs save it."""
    path.write_bytes("prompt,answer\nfür dich,1\n".encode("latin-1"))


def utf_16_table(path: Path) -> None:
    """A table as a spreadsheet saves "Unicode text"."""
    path.write_bytes("prompt\tanswer\nfür dich\t1\nfür mich\t2\n".encode("utf-16"))


def compressed_lines(path: Path) -> None:
    """Lines of JSON, compressed."""
    path.write_bytes(gzip.compress(b'{"prompt": "a", "answer": "1"}\n' * 2))


def parquet_with_null(path: Path) -> None:
    """Three rows, of which the second has no prompt."""
    columns = {"prompt": ["a", None, "b"], "answer": ["1", "2", "3"]}
    pq.write_table(pa.table(columns), path)


def parquet_without_rows(path: Path) -> None:
    """Columns alone."""
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), path)


def empty_folder(path: Path) -> None:
    path.mkdir()


def parquet_odd(path: Path) -> None:
    """Columns of the rarer types, and a prompt in large strings."""
    columns = {
        "id": pa.array([1, 2]),
        "my.prompt": pa.array(["one and one?", "two and two?"], pa.large_string()),
        "answer": pa.array(["2", "4"]).dictionary_encode(),
        "at": pa.array([0, 1], pa.timestamp("s")),
        "nested": pa.array([{"a": [[1.0]]}, None]),
    }
    pq.write_table(pa.table(columns), path)


def parquet_images(path: Path) -> None:
    """Prompts beside images and embeddings."""
    images = [{"bytes": b"\x89PNG", "path": None}] * 2
    columns = {"prompt": ["one", "two"], "image": images, "embedding": [[0.5] * 8] * 2}
    pq.write_table(pa.table(columns), path)


def saved_splits(path: Path) -> None:
    """Two splits, as `DatasetDict.save_to_disk` writes them."""
    rows = datasets.Dataset.from_dict({"prompt": ["a", "b"], "answer": ["1", "2"]})
    datasets.DatasetDict(train=rows, test=rows.select([1])).save_to_disk(path)


def saved_validation(path: Path) -> None:
    """A split alone."""
    rows = datasets.Dataset.from_dict({"prompt": ["a", "b"]})
    datasets.DatasetDict(validation=rows).save_to_disk(path)


def verl_rows(path: Path) -> None:
    """Rows as verl's scripts write them."""
    truths = [{"ground_truth": str(2 * i), "style": "rule"} for i in range(4)]
    asked = [[{"role": "user", "content": f"{i}+{i}="}] for i in range(4)]
    extra = [{"index": i} for i in range(4)]
    columns = {"data_source": ["sums"] * 4, "prompt": asked, "reward_model": truths}
    pq.write_table(pa.table({**columns, "extra_info": extra}), path)


def unread_generation_config(folder: Path) -> None:
    """A generation_config.json that is no JSON."""
    save_language_model(folder, "qwen3")
    (folder / "generation_config.json").write_text("{")


def end_as_text(folder: Path) -> None:
    """A model whose end of text is written as a text."""
    _change(save_language_model(folder, "qwen3") / "generation_config.json", eos_token_id="2")


def stop_strings(folder: Path) -> None:
    """A model whose files end texts at a text."""
    _change(save_language_model(folder, "qwen3") / "generation_config.json", stop_strings=["END"])


def tokenizer_without_its_file(folder: Path) -> None:
    """A tokenizer's settings without its tokens."""
    (save_language_model(folder, "qwen3") / "tokenizer.json").unlink()


def qwen_model(path: Path) -> None:
    """A language model whose turns end with `<|im_end|>`, with room for tools."""
    config = save_language_model(path, "qwen3") / "config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps({**values, "max_position_embeddings": 512}))


def llama_model(path: Path) -> None:
    """A language model with a token before texts, whose turns end with `<|eot|>`."""
    save_language_model(path, "llama")


def gemma_model(path: Path) -> None:
    """A language model whose template knows no system message."""
    save_language_model(path, "gemma3")


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


def predicts_the_sample(folder: Path) -> None:
    _scheduler(folder, "DDIMScheduler", prediction_type="sample")


def euler(folder: Path) -> None:
    _scheduler(folder, "EulerDiscreteScheduler")


def dpm_solver(folder: Path) -> None:
    _scheduler(folder, "DPMSolverMultistepScheduler")


def few_train_timesteps(folder: Path) -> None:
    _scheduler(folder, "DDIMScheduler", num_train_timesteps=100)


def edm(folder: Path) -> None:
    betas = dict.fromkeys(("beta_start", "beta_end", "beta_schedule", "trained_betas"))
    _scheduler(folder, "EDMEulerScheduler", sigma_min=0.002, **betas)


def safety_checker_lost(folder: Path) -> None:
    names = {"safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"]}
    names["feature_extractor"] = ["transformers", "CLIPImageProcessor"]
    _change(_copy("tiny_sd", folder) / "model_index.json", **names)


def unet_without_config(folder: Path) -> None:
    (_copy("tiny_sd", folder) / "unet" / "config.json").unlink()


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
