"""A small tokenizer, trained where it is used, and texts for it."""

from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

WORDS = ["the", "slab", "keeps", "every", "row", "of", "a", "field", "that", "readers", "gather"]
TEXTS = [" ".join(np.random.default_rng(seed).choice(WORDS, seed % 40)) for seed in range(200)] + [
    "é ñ \x00 \U0001f600 </s>",
    "\n",
    "unseen wörds",
]
PAD, START, END = 0, 1, 2


def trained() -> Any:
    """A byte-level BPE tokenizer that puts <s> in front of a text and </s> behind it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["[PAD]", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", special_tokens=[("<s>", START), ("</s>", END)]
    )
    return tokenizer
