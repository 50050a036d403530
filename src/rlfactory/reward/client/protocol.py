"""The protocol between `rlfactory serve` and its clients: JSON, with images in base64.

A request holds `prompts`, `metadata` and `groups`, and either `texts` or `images`, which are
`{"format": "png", "data": [...]}` or `{"format": "raw", "shape": [3, H, W], "data": [...]}`.
Where the model edits pictures, `pictures` holds the file of each prompt's picture; where prompts
are conversations, `conversations` holds `messages` and `tools` of each, nothing of a text. `ended`
says which texts ended by themselves.
A response holds `scores`: by name a list of numbers, null for a sample without a score.
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

from rlfactory.prompts.ops.chat import MESSAGES, ChatText, conversation, tools_of
from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.reward.base import Samples
from rlfactory.utils.images import to_pil

PROTOCOL = 1
Encoding = Literal["png", "raw"]
_LARGEST = torch.finfo(torch.float32).max


class ProtocolError(ValueError):
    """A malformed request or response; the message says what is wrong."""


def to_json(message: object) -> bytes:
    """Strict JSON; ValueError for NaN and infinities."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode()


def from_json(body: bytes) -> dict[str, Any]:
    """A JSON object from bytes; ProtocolError where they are anything else."""
    try:
        message = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"this is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError("this is no JSON object")
    return message


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


def encode_samples(samples: Samples, rows: Sequence[int], encoding: Encoding) -> dict[str, Any]:
    """A request for the scores of the given rows of `samples`."""
    message: dict[str, Any] = {
        "protocol": PROTOCOL,
        "prompts": [samples.prompts[i] for i in rows],
        "metadata": [dict(samples.metadata[i]) for i in rows],
        "groups": samples.groups[list(rows)].tolist(),
    }
    pictured = [prompt for prompt in message["prompts"] if isinstance(prompt, PicturedText)]
    if pictured and len(pictured) == len(rows):
        message["pictures"] = [b64encode(prompt.content).decode() for prompt in pictured]
    if any(isinstance(prompt, ChatText) for prompt in message["prompts"]):
        message["conversations"] = [
            vars(prompt) if isinstance(prompt, ChatText) else {} for prompt in message["prompts"]
        ]
    if samples.ended is not None:
        message["ended"] = samples.ended[list(rows)].tolist()
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
    """The PNG file of an image `[3, H, W]` uint8."""
    file = BytesIO()
    to_pil(image).save(file, "PNG", compress_level=1)
    return file.getvalue()


@dataclass(frozen=True)
class ScoringRequest:
    """A parsed request; its images are still encoded.

    Attributes:
        prompts: Of `B` samples.
        metadata: Of each prompt.
        groups: Group numbers from 0.
        texts: The completions, if texts are scored.
        ended: Whether each ended by itself; None where that is not known.
        files: The encoding of the images and the `B` files, if images are scored.
        size: (H, W) of all images, as their files state it.
    """

    prompts: list[str]
    metadata: list[dict[str, Any]]
    groups: list[int]
    texts: list[str] | None = None
    ended: list[bool] | None = None
    files: tuple[Encoding, list[bytes]] | None = None
    size: tuple[int, int] = (0, 0)

    @property
    def pixels(self) -> int:
        """The number of pixels of all images."""
        return len(self.prompts) * self.size[0] * self.size[1]

    def samples(self) -> Samples:
        """The samples with decoded images; ProtocolError where one is damaged."""
        images = None
        if self.files is not None:
            encoding, files = self.files
            images = torch.stack(
                [_decode(file, encoding, self.size, i) for i, file in enumerate(files)]
            )
        groups = torch.tensor(self.groups, dtype=torch.int64)
        ended = None if self.ended is None else torch.tensor(self.ended)
        return Samples(self.prompts, self.metadata, groups, images, self.texts, ended)


def read_request(
    message: Mapping[str, Any], media: str, keys: Sequence[str] = ()
) -> ScoringRequest:
    """A request to a reward of "images" or "texts" that requires some `keys` of metadata; groups
    are renumbered from 0 in the order in which they appear.

    ProtocolError where it is malformed, or lacks what the reward needs.
    """
    if message.get("protocol", PROTOCOL) != PROTOCOL:
        raise ProtocolError(f"protocol {message['protocol']!r} is not spoken here, but {PROTOCOL}")
    prompts = _list(message, "prompts", str)
    count = len(prompts)
    if not count:
        raise ProtocolError("there are no prompts")
    if "pictures" in message:
        pairs = zip(prompts, _decoded(_list(message, "pictures", str, count)), strict=True)
        prompts = [PicturedText(prompt, file) for prompt, file in pairs]
    if "conversations" in message:
        chats = _list(message, "conversations", dict, count)
        prompts = [_chat(c) if c else prompt for prompt, c in zip(prompts, chats, strict=True)]
    metadata = _list(message, "metadata", dict, count) if "metadata" in message else [{}] * count
    for number, row in enumerate(metadata):
        if missing := [key for key in keys if key not in row]:
            raise ProtocolError(f"metadata {number} lacks {', '.join(missing)}")
    labels = _list(message, "groups", int, count) if "groups" in message else range(count)
    number_of = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    groups = [number_of[label] for label in labels]
    if media == "texts":
        texts = _list(message, "texts", str, count)
        ended = _list(message, "ended", bool, count) if "ended" in message else None
        return ScoringRequest(prompts, metadata, groups, texts, ended)
    images = message.get("images")
    if not isinstance(images, dict):
        raise ProtocolError("there are no images, and this reward scores images")
    files, size = _files(images, count)
    return ScoringRequest(prompts, metadata, groups, files=files, size=size)


def _chat(given: Mapping[str, Any]) -> ChatText:
    try:
        return ChatText(conversation(given.get(MESSAGES)), tools_of(given))
    except ValueError as error:
        raise ProtocolError(f"a conversation: {error}") from error


def _list(message: Mapping[str, Any], key: str, kind: type, count: int | None = None) -> list[Any]:
    values = message.get(key)
    if not isinstance(values, list):
        raise ProtocolError(f"{key} must be a list")
    if count is not None and len(values) != count:
        raise ProtocolError(f"there are {len(values)} {key} for {count} prompts")
    for number, value in enumerate(values):
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ProtocolError(f"{key} {number} must be of type {kind.__name__}")
    return values


def _files(
    images: Mapping[str, Any], count: int
) -> tuple[tuple[Encoding, list[bytes]], tuple[int, int]]:
    """The encoded images, and the (H, W) that their headers state; nothing is decompressed yet."""
    files = _decoded(_list(images, "data", str, count))
    encoding = images.get("format")
    if encoding == "raw":
        return ("raw", files), _raw_size(images.get("shape"), files)
    if encoding != "png":
        raise ProtocolError(f"images have format {encoding!r}; allowed are png and raw")
    sizes = {_png_size(file, i) for i, file in enumerate(files)}
    if len(sizes) > 1:
        raise ProtocolError(f"the images of a request must have one size, not {len(sizes)}")
    return ("png", files), sizes.pop()


def _decoded(encoded: Sequence[str]) -> list[bytes]:
    try:
        return [b64decode(text, validate=True) for text in encoded]
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(f"an image is no base64: {error}") from error


def _raw_size(shape: object, files: Sequence[bytes]) -> tuple[int, int]:
    valid = isinstance(shape, list) and all(type(n) is int and 0 < n < 2**20 for n in shape)
    if not isinstance(shape, list) or not valid or len(shape) != 3 or shape[0] != 3:
        raise ProtocolError(f"raw images need their shape, [3, H, W], not {shape!r:.50}")
    wrong = [i for i, file in enumerate(files) if len(file) != math.prod(shape)]
    if wrong:
        raise ProtocolError(
            f"image {wrong[0]} does not have the {math.prod(shape)} bytes of {shape}"
        )
    return shape[1], shape[2]


def _png_size(file: bytes, number: int) -> tuple[int, int]:
    """The (H, W) in the header of a PNG file, without decompressing it."""
    try:
        with Image.open(BytesIO(file), formats=["PNG"]) as image:
            mode, (width, height) = image.mode, image.size
    except Exception as error:  # Pillow raises anything for a damaged file
        raise ProtocolError(f"image {number} is no PNG: {error!s:.100}") from error
    if mode != "RGB":
        raise ProtocolError(f"image {number} is a PNG of mode {mode}; only RGB is read")
    return height, width


def _decode(file: bytes, encoding: Encoding, size: tuple[int, int], number: int) -> Tensor:
    if encoding == "raw":
        return torch.frombuffer(bytearray(file), dtype=torch.uint8).view(3, *size)
    try:
        with Image.open(BytesIO(file), formats=["PNG"]) as image:
            pixels = np.array(image)
    except Exception as error:
        raise ProtocolError(f"image {number} is damaged: {error!s:.100}") from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


def encode_scores(scores: Mapping[str, Tensor]) -> dict[str, Any]:
    """The response with `scores`, each `[B]`; NaN becomes null."""
    rows = {name: values.tolist() for name, values in scores.items()}
    return {"scores": {n: [None if math.isnan(v) else v for v in row] for n, row in rows.items()}}


def decode_scores(message: Mapping[str, Any], count: int, main: str) -> dict[str, Tensor]:
    """The scores `[count]` float32 of a response; ProtocolError where it is malformed."""
    scores = message.get("scores")
    if not isinstance(scores, dict) or main not in scores:
        raise ProtocolError(f"the answer has no scores of the name {main}")
    return {str(name): _scores(row, count, str(name)) for name, row in scores.items()}


def _scores(row: object, count: int, name: str) -> Tensor:
    if not isinstance(row, list) or len(row) != count:
        actual = len(row) if isinstance(row, list) else "no"
        raise ProtocolError(f"the answer has {actual} scores {name} for {count} samples")
    return torch.tensor([_number(value, name) for value in row], dtype=torch.float32)


def _number(value: object, name: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
        raise ProtocolError(f"a score {name} is {value!r:.50}, neither a finite number nor null")
    return float(value)
