"""Train a small language model: text is packed as tokens, and each asks for the next one.

python examples/train_language_model.py LICENSE
"""

import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from fieldslab.packer import pack
from fieldslab.reader import Loader, Shift, open_slab

EPOCHS = 20
VOCABULARY = 512
IGNORE = -100
"""Targets that torch leaves out of the loss."""


class Model(torch.nn.Module):
    """Scores of what follows each token, judged by the last four."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, 64)
        self.window = torch.nn.Conv1d(64, 128, kernel_size=4)
        self.scores = torch.nn.Linear(128, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens int64 (rows, length) to scores (rows, length, VOCABULARY)."""
        embedded = self.embedding(tokens).transpose(1, 2)
        states = self.window(torch.nn.functional.pad(embedded, (3, 0))).relu()
        return self.scores(states.transpose(1, 2))


def prepare(text: Path, folder: Path) -> Path:
    """Learn a tokenizer from the paragraphs of a text, and pack them with it."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.read_text("utf-8"))]
    pq.write_table(pa.table({"text": paragraphs}), folder / "texts.parquet")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(paragraphs, trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    pack(
        folder / "texts.parquet",
        folder / "texts.slab",
        tokenize={"text": folder / "tokenizer.json"},
        max_length=128,
    )
    return folder / "texts.slab"


def train(slab: Path) -> None:
    """Train, and print the loss of each epoch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more only get in each other's way where a step is this small
    pairs = Shift("text", ignore=IGNORE, dtype=np.int64)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with Loader(open_slab(slab), 16, transforms=[pairs], output="torch") as loader:
        for epoch in range(EPOCHS):
            losses = []
            for batch in loader:
                scores = model(batch["inputs"]).flatten(0, 1)
                targets = batch["targets"].flatten()
                loss = torch.nn.functional.cross_entropy(scores, targets, ignore_index=IGNORE)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")


def main(path: str) -> None:
    """Pack the text at `path` into a temporary folder and learn from it."""
    with tempfile.TemporaryDirectory() as folder:
        train(prepare(Path(path), Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "LICENSE")
