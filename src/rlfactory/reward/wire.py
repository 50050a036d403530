"""What a server of rewards and its clients say to each other: JSON, with pictures in base64.

A request holds `prompts`, `metadata` and `groups`, and either `texts` or `images`, which are
`{"format": "png", "data": [...]}` or `{"format": "raw", "shape": [3, H, W], "data": [...]}`.
An answer holds `scores`, a list of numbers by name, null where there is none.
"""

import binascii
import json
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rlfactory.pillow import to_pil
from rlfactory.reward.base import Samples

PROTOCOL = 1
Encoding = Literal["png", "raw"]
_LARGEST = torch.finfo(torch.float32).max


class WireError(ValueError):
    """A message that is not what it should be; it says what is wrong."""


def to_json(message: object) -> bytes:
    """Strict JSON, in which NaN has no place."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode()


def from_json(body: bytes) -> dict[str, Any]:
    """An object; WireError where the bytes are anything else."""
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"this is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise WireError("this is no JSON object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


def encode_samples(samples: Samples, rows: Sequence[int], encoding: Encoding) -> dict[str, Any]:
    """The request that asks for the scores of some rows of `samples`."""
    message: dict[str, Any] = {
        "protocol": PROTOCOL,
        "prompts": [samples.prompts[i] for i in rows],
        "metadata": [dict(samples.metadata[i]) for i in rows],
        "groups": samples.groups[list(rows)].tolist(),
    }
    if samples.images is not None:
        message["images"] = _encode_images(samples.images[list(rows)], encoding)
    else:
        message["texts"] = [samples.texts[i] for i in rows] if samples.texts else []
    return message


def _encode_images(images: Tensor, encoding: Encoding) -> dict[str, Any]:
    if encoding == "raw":
        data = [image.contiguous().numpy().tobytes() for image in images]
        shape = {"shape": list(images.shape[1:])}
    else:
        data, shape = [png(image) for image in images], {}
    return {"format": encoding, **shape, "data": [b64encode(file).decode() for file in data]}


def png(image: Tensor) -> bytes:
    """The PNG file of a picture `[3, H, W]` uint8."""
    file = BytesIO()
    to_pil(image).save(file, "PNG", compress_level=1)
    return file.getvalue()


@dataclass(frozen=True)
class Request:
    """A request that was read, with its pictures still as files of one `size` (H, W)."""

    prompts: list[str]
    metadata: list[dict[str, Any]]
    groups: list[int]
    texts: list[str] | None = None
    files: tuple[Encoding, list[bytes]] | None = None
    size: tuple[int, int] = (0, 0)

    @property
    def pixels(self) -> int:
        """Of all its pictures."""
        return len(self.prompts) * self.size[0] * self.size[1]

    def samples(self) -> Samples:
        """What a reward sees; WireError where a picture is damaged."""
        images = None
        if self.files is not None:
            encoding, files = self.files
            read = _unpng if encoding == "png" else _unraw
            images = torch.stack([read(file, self.size, i) for i, file in enumerate(files)])
        groups = torch.tensor(self.groups, dtype=torch.int64)
        return Samples(self.prompts, self.metadata, groups, images, self.texts)


def read_request(message: Mapping[str, Any], media: str, keys: Sequence[str] = ()) -> Request:
    """A request of a reward that judges `media` and reads `keys` of the metadata, or WireError.

    Groups are numbered anew from 0, in the order in which they come.
    """
    if message.get("protocol", PROTOCOL) != PROTOCOL:
        raise WireError(f"protocol {message['protocol']!r} is not spoken here, but {PROTOCOL}")
    prompts = _list(message, "prompts", str)
    count = len(prompts)
    if not count:
        raise WireError("there are no prompts")
    metadata = _list(message, "metadata", dict, count) if "metadata" in message else [{}] * count
    for number, row in enumerate(metadata):
        if missing := [key for key in keys if key not in row]:
            raise WireError(f"metadata {number} lacks {', '.join(missing)}")
    given = _list(message, "groups", int, count) if "groups" in message else range(count)
    number_of = {group: i for i, group in enumerate(dict.fromkeys(given))}
    groups = [number_of[group] for group in given]
    if media == "texts":
        return Request(prompts, metadata, groups, texts=_list(message, "texts", str, count))
    images = message.get("images")
    if not isinstance(images, dict):
        raise WireError("there are no images, and these are what is judged here")
    files, size = _files(images, count)
    return Request(prompts, metadata, groups, files=files, size=size)


def _list(message: Mapping[str, Any], key: str, kind: type, count: int | None = None) -> list[Any]:
    values = message.get(key)
    if not isinstance(values, list):
        raise WireError(f"{key} must be a list")
    if count is not None and len(values) != count:
        raise WireError(f"there are {len(values)} {key} for {count} prompts")
    for number, value in enumerate(values):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise WireError(f"{key} {number} must be of type {kind.__name__}")
    return values


def _files(
    images: Mapping[str, Any], count: int
) -> tuple[tuple[Encoding, list[bytes]], tuple[int, int]]:
    """The files of some pictures and the size that all have, which is read but not trusted."""
    encoded = _list(images, "data", str, count)
    try:
        files = [b64decode(text, validate=True) for text in encoded]
    except (binascii.Error, ValueError) as error:
        raise WireError(f"a picture is no base64: {error}") from error
    encoding = images.get("format")
    if encoding == "raw":
        return ("raw", files), _raw_size(images.get("shape"), files)
    if encoding != "png":
        raise WireError(f"pictures have format {encoding!r}; known are png and raw")
    sizes = {_png_size(file, i) for i, file in enumerate(files)}
    if len(sizes) > 1:
        raise WireError(f"the pictures of a request have one size, not {len(sizes)}")
    return ("png", files), sizes.pop()


def _raw_size(shape: object, files: Sequence[bytes]) -> tuple[int, int]:
    whole = isinstance(shape, list) and all(type(n) is int and 0 < n < 2**20 for n in shape)
    if not isinstance(shape, list) or not whole or len(shape) != 3 or shape[0] != 3:
        raise WireError(f"raw pictures need their shape, [3, H, W], not {shape!r:.50}")
    wrong = [i for i, file in enumerate(files) if len(file) != math.prod(shape)]
    if wrong:
        raise WireError(f"picture {wrong[0]} does not have the {math.prod(shape)} bytes of {shape}")
    return shape[1], shape[2]


def _png_size(file: bytes, number: int) -> tuple[int, int]:
    """The size that the head of a file states: nothing is unpacked."""
    try:
        with Image.open(BytesIO(file), formats=["PNG"]) as image:
            mode, (width, height) = image.mode, image.size
    except Exception as error:  # whatever a damaged file makes Pillow raise
        raise WireError(f"picture {number} is no PNG: {error!s:.100}") from error
    if mode != "RGB":
        raise WireError(f"picture {number} is a PNG of mode {mode}; only RGB is read")
    return height, width


def _unpng(file: bytes, size: tuple[int, int], number: int) -> Tensor:
    del size
    try:
        with Image.open(BytesIO(file), formats=["PNG"]) as image:
            pixels = np.array(image)
    except Exception as error:
        raise WireError(f"picture {number} is damaged: {error!s:.100}") from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _unraw(file: bytes, size: tuple[int, int], number: int) -> Tensor:
    del number
    return torch.frombuffer(bytearray(file), dtype=torch.uint8).view(3, *size)


def encode_scores(scores: Mapping[str, Tensor]) -> dict[str, Any]:
    """The answer that holds `scores`, each `[B]`; null stands for NaN."""
    rows = {name: values.tolist() for name, values in scores.items()}
    return {"scores": {n: [None if math.isnan(v) else v for v in row] for n, row in rows.items()}}


def decode_scores(message: Mapping[str, Any], count: int, main: str) -> dict[str, Tensor]:
    """The scores `[count]` float32 of an answer; WireError unless they are sound."""
    found = message.get("scores")
    if not isinstance(found, dict) or main not in found:
        raise WireError(f"the answer has no scores of the name {main}")
    return {str(name): _scores(row, count, str(name)) for name, row in found.items()}


def _scores(row: object, count: int, name: str) -> Tensor:
    if not isinstance(row, list) or len(row) != count:
        found = len(row) if isinstance(row, list) else "no"
        raise WireError(f"the answer has {found} scores {name} for {count} samples")
    return torch.tensor([_number(value, name) for value in row], dtype=torch.float32)


def _number(value: object, name: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
        raise WireError(f"a score {name} is {value!r:.50}, neither a finite number nor null")
    return float(value)
