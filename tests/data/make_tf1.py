"""Make the TensorFlow checkpoints in this folder and the vectors that TensorFlow gives.

bilm-tf itself needs TensorFlow 1; its graph is built here from TensorFlow's own parts, as bilm's
`training.py` and `model.py` do (LSTMCell with projection and clips, ResidualWrapper, convolutions,
highways), so that names, files and numbers are TensorFlow's. Needs its own environment:

    pip install tensorflow-cpu==2.15.1 h5py
    python make_tf1.py
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import h5py
import numpy as np
import tensorflow.compat.v1 as tf

HERE = Path(__file__).parent
WORDS = ["<S>", "</S>", "<UNK>", "the", "bank", "of", "river", ".", "naïve"]
SENTENCES = [
    ["the", "bank", "of", "the", "river", "."],
    ["naïve", "速い狐", "antidisestablishmentarianism"],
    ["the"],
]
LSTM = {"cell_clip": 0.5, "proj_clip": 0.25, "use_skip_connections": True}
CHARACTERS = {
    "activation": "relu",
    "embedding": {"dim": 3},
    "filters": [[1, 4], [2, 5], [3, 3]],
    "max_characters_per_token": 10,
    "n_characters": 261,
    "n_highway": 1,
}
MODELS = {
    "tf1_characters": {
        "bidirectional": True,
        "lstm": {**LSTM, "dim": 12, "projection_dim": 6, "n_layers": 2},
        "char_cnn": CHARACTERS,
    },
    "tf1_words_one_layer": {
        "bidirectional": True,
        "lstm": {**LSTM, "dim": 10, "projection_dim": 5, "n_layers": 1},
    },
    "tf1_forward_three_layers": {
        "bidirectional": False,
        "lstm": {**LSTM, "dim": 6, "projection_dim": 6, "n_layers": 3},
        "char_cnn": {**CHARACTERS, "activation": "tanh", "n_highway": 0},
    },
    "tf1_hub": {
        "bidirectional": True,
        "lstm": {
            "cell_clip": 3,
            "proj_clip": 3,
            "use_skip_connections": True,
            "dim": 8,
            "projection_dim": 4,
            "n_layers": 2,
        },
        "char_cnn": {**CHARACTERS, "max_characters_per_token": 50},
    },
}


def character_ids(token: str, columns: int) -> list[int]:
    """bilm's UnicodeCharsVocabulary, without the shift of inference."""
    special = {"<S>": [256], "</S>": [257]}
    inner = special.get(token) or list(token.encode("utf-8", "ignore")[: columns - 2])
    ids = [258, *inner, 259]
    return ids + [260] * (columns - len(ids))


def variable(name: str, shape: list[int], scale: float = 0.5) -> tf.Variable:
    return tf.get_variable(name, shape, tf.float32, tf.random_normal_initializer(0, scale))


def token_layer(options: dict, ids: tf.Tensor, hub: bool) -> tf.Tensor:
    cnn = options["char_cnn"]
    dim, width = options["lstm"]["projection_dim"], sum(n for _, n in cnn["filters"])
    # The inference graph, from which TF-Hub's module was made, has a row of zeros for padding.
    rows = 262 if hub else 261
    table = variable("char_embed", [rows, cnn["embedding"]["dim"]])
    characters = tf.nn.embedding_lookup(table, ids + 1 if hub else ids)
    parts = []
    with tf.variable_scope("CNN"):
        for i, (size, count) in enumerate(cnn["filters"]):
            weight = variable(f"W_cnn_{i}", [1, size, cnn["embedding"]["dim"], count])
            bias = variable(f"b_cnn_{i}", [count])
            values = tf.nn.conv2d(characters, weight, strides=[1, 1, 1, 1], padding="VALID") + bias
            largest = tf.reduce_max(values, axis=2)
            parts.append(getattr(tf.nn, cnn["activation"])(largest))
    x = tf.reshape(tf.concat(parts, axis=2), [-1, width])
    for k in range(cnn["n_highway"]):
        with tf.variable_scope(f"CNN_high_{k}"):
            carry = tf.nn.sigmoid(
                tf.matmul(x, variable("W_carry", [width, width])) + variable("b_carry", [width])
            )
            transform = tf.nn.relu(
                tf.matmul(x, variable("W_transform", [width, width]))
                + variable("b_transform", [width])
            )
            x = carry * transform + (1.0 - carry) * x
    if width > dim:
        with tf.variable_scope("CNN_proj"):
            x = tf.matmul(x, variable("W_proj", [width, dim])) + variable("b_proj", [dim])
    return tf.reshape(x, [1, -1, dim])


def lstm_layers(options: dict, inputs: tf.Tensor, scope: str | None, hub: bool) -> list[tf.Tensor]:
    """All layers of one direction, inputs already in reading order."""
    lstm = options["lstm"]
    cells = []
    for k in range(lstm["n_layers"]):
        projected = lstm["projection_dim"] < lstm["dim"]
        cell = tf.nn.rnn_cell.LSTMCell(
            lstm["dim"],
            num_proj=lstm["projection_dim"] if projected else None,
            cell_clip=lstm["cell_clip"],
            proj_clip=lstm["proj_clip"],
        )
        if k and lstm["use_skip_connections"]:
            cell = tf.nn.rnn_cell.ResidualWrapper(cell)
        cells.append(cell)
    outputs: list[tf.Tensor] = []
    with tf.variable_scope(scope) if scope else tf.variable_scope(tf.get_variable_scope()):
        if hub:
            # bilm's inference graph: a dynamic_rnn for each layer, under RNN/MultiRNNCell/CellN.
            for k, cell in enumerate(cells):
                with tf.variable_scope(f"RNN/MultiRNNCell/Cell{k}"):
                    x = outputs[-1] if outputs else inputs
                    outputs.append(tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)[0])
            return outputs
        if len(cells) == 1:
            steps_in = [inputs[:, t] for t in range(LENGTH)]
            return [tf.nn.static_rnn(cells[0], steps_in, dtype=tf.float32)[0]]
        stack = tf.nn.rnn_cell.MultiRNNCell(cells)
        # All layers of the training graph: run the stack by hand, as static_rnn does.
        state = stack.zero_state(1, tf.float32)
        steps: list[list[tf.Tensor]] = [[] for _ in cells]
        with tf.variable_scope("rnn"):
            for t in range(LENGTH):
                if t:
                    tf.get_variable_scope().reuse_variables()
                x, new = inputs[:, t], []
                with tf.variable_scope("multi_rnn_cell"):
                    for k, cell in enumerate(cells):
                        with tf.variable_scope(f"cell_{k}"):
                            x, s = cell(x, state[k])
                        steps[k].append(x)
                        new.append(s)
                state = tuple(new)
        return [tf.stack(step, axis=1) for step in steps]


LENGTH = 0  # of the sentence for which the graph is built


def build(options: dict, tokens: list[str], hub: bool) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """The graph over one sentence; -> layers (L + 1, n, dim) and log probabilities."""
    global LENGTH
    whole = ["<S>", *tokens, "</S>"]
    LENGTH = len(whole)
    dim = options["lstm"]["projection_dim"]
    with tf.variable_scope("module/bilm" if hub else "lm", reuse=tf.AUTO_REUSE):
        if "char_cnn" in options:
            columns = options["char_cnn"]["max_characters_per_token"]
            ids = tf.constant([[character_ids(token, columns) for token in whole]])
            vectors = token_layer(options, ids, hub)
        else:
            with tf.device("/cpu:1"):
                table = variable("embedding", [len(WORDS), dim])
            ids = [WORDS.index(t) if t in WORDS else WORDS.index("<UNK>") for t in whole]
            vectors = tf.nn.embedding_lookup(table, [ids])
        both = options["bidirectional"]
        forward = [vectors, *lstm_layers(options, vectors, "RNN_0" if both else None, hub)]
        halves = [[_dense(x) for x in forward]]
        if both:
            turned = tf.reverse(vectors, [1])
            backward = lstm_layers(options, turned, "RNN_1", hub)
            halves.append([vectors, *(tf.reverse(_dense(x), [1]) for x in backward)])
        layers = tf.stack([tf.concat(pair, axis=2)[0] for pair in zip(*halves, strict=True)])
        scores = {}
        if not hub:
            with tf.variable_scope("softmax"), tf.device("/cpu:1"):
                weight = variable("W", [len(WORDS), dim])
                bias = variable("b", [len(WORDS)])
            targets = [WORDS.index(t) if t in WORDS else WORDS.index("<UNK>") for t in whole]
            logp = tf.nn.log_softmax(tf.matmul(halves[0][-1][0], weight, transpose_b=True) + bias)
            scores["forward"] = tf.stack([logp[t, targets[t + 1]] for t in range(LENGTH - 1)])
            if both:
                top = halves[1][-1][0]
                logp = tf.nn.log_softmax(tf.matmul(top, weight, transpose_b=True) + bias)
                scores["backward"] = tf.stack([logp[t, targets[t - 1]] for t in range(1, LENGTH)])
    return layers[:, 1:-1], scores


def _dense(x: object) -> tf.Tensor:
    return tf.stack(x, axis=1) if isinstance(x, list) else x


def make(name: str, options: dict) -> None:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "variables" if name == "tf1_hub" else folder).mkdir(parents=True)
    hub = name == "tf1_hub"
    tf.reset_default_graph()
    tf.set_random_seed(3)
    results = [build(options, tokens, hub) for tokens in SENTENCES]
    if hub:
        with tf.variable_scope("module/aggregation"):
            tf.get_variable("weights", initializer=tf.constant([0.3, -0.2, 0.5]))
            tf.get_variable("scaling", initializer=tf.constant(1.25))
    else:
        tf.get_variable("global_step", initializer=tf.constant(7.0))
        weights = [v for v in tf.global_variables() if v.op.name.startswith("lm/")]
        for v in weights[:3]:  # what the optimiser leaves beside variables
            tf.get_variable(f"{v.op.name}/Adagrad", initializer=tf.ones(v.shape))
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(tf.global_variables_initializer())
        if hub:  # the row of zeros
            table = next(v for v in tf.global_variables() if v.op.name.endswith("char_embed"))
            session.run(table[0].assign(tf.zeros(table.shape[1])))
        sharded = name == "tf1_words_one_layer"
        saver = tf.train.Saver(sharded=sharded)
        if hub:
            prefix = str(folder / "variables" / "variables")
            saver.save(session, prefix, write_meta_graph=False, write_state=False)
        else:
            saver.save(session, str(folder / "model.ckpt"), global_step=7, write_meta_graph=False)
        with h5py.File(HERE / f"{name}.hdf5", "w") as file:
            for k, (layers, scores) in enumerate(results):
                file[f"layers/{k}"] = session.run(layers).astype(np.float32)
                for direction, values in scores.items():
                    file[f"{direction}/{k}"] = session.run(values).astype(np.float32)
    if not hub:
        (folder / "options.json").write_text(json.dumps(options, indent=1) + "\n")
        (folder / "vocab.txt").write_text("".join(f"{w}\n" for w in WORDS), encoding="utf-8")
        state = folder / "checkpoint"  # the path of this machine becomes one that is gone
        state.write_text(
            'model_checkpoint_path: "/gone/model.ckpt-7"\n'
            'all_model_checkpoint_paths: "/gone/model.ckpt-7"\n'
        )
    print(name, len(tf.global_variables()), "variables")


if __name__ == "__main__":
    tf.disable_v2_behavior()
    text = json.dumps(SENTENCES, ensure_ascii=False) + "\n"
    (HERE / "tf1_sentences.json").write_text(text, encoding="utf-8")
    for name, options in MODELS.items():
        make(name, options)
