"""Optimizers and schedules to compare with PyTorch's, live and by recorded numbers.

Each entry takes the module (``jaxsaw.optim`` or ``torch.optim``) and the Parameters, or the module
of schedules and the optimizer.
"""

import numpy as np

SHAPES = [(3, 4), (5,), (), (2, 3, 2)]
STEPS = 100


def values(seed=0, shapes=SHAPES):
    r = np.random.RandomState(seed)
    return [np.asarray(r.standard_normal(shape), np.float32) for shape in shapes]


def gradients(step, shapes=SHAPES):
    """Gradients whose size varies by element over several orders."""
    r = np.random.RandomState(1000 + step)
    sizes = [10.0 ** np.random.RandomState(7).uniform(-4, 1, shape) for shape in shapes]
    return [
        np.asarray((r.standard_normal(s) + 0.3) * z, np.float32)
        for s, z in zip(shapes, sizes, strict=True)
    ]


CASES = {
    "sgd": lambda o, p: o.SGD(p, lr=0.01),
    "sgd decay": lambda o, p: o.SGD(p, lr=0.01, weight_decay=0.1),
    "sgd momentum": lambda o, p: o.SGD(p, lr=0.01, momentum=0.9),
    "sgd dampening": lambda o, p: o.SGD(p, 0.01, 0.9, 0.3, weight_decay=0.01),
    "sgd nesterov": lambda o, p: o.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "sgd maximize": lambda o, p: o.SGD(p, 0.01, 0.5, maximize=True, weight_decay=0.1),
    "adam": lambda o, p: o.Adam(p, lr=0.01),
    "adam betas": lambda o, p: o.Adam(p, lr=0.01, betas=(0.5, 0.9999), eps=1e-3),
    "adam zero betas": lambda o, p: o.Adam(p, lr=0.01, betas=(0.0, 0.0)),
    "adam decay": lambda o, p: o.Adam(p, lr=0.01, weight_decay=0.1),
    "adam amsgrad": lambda o, p: o.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.01),
    "adam maximize": lambda o, p: o.Adam(p, lr=0.01, amsgrad=True, maximize=True),
    "adam decoupled": lambda o, p: o.Adam(
        p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "adamw": lambda o, p: o.AdamW(p, lr=0.01),
    "adamw decay": lambda o, p: o.AdamW(p, 0.05, (0.8, 0.95), 1e-6, 0.3, amsgrad=True),
    "adamw maximize": lambda o, p: o.AdamW(p, lr=0.01, maximize=True),
}

# Families with fewer tests each.
MORE = {
    "adadelta": lambda o, p: o.Adadelta(p, lr=0.5),
    "adadelta decay": lambda o, p: o.Adadelta(p, 0.5, 0.8, 1e-4, 0.1, maximize=True),
    "adagrad": lambda o, p: o.Adagrad(p, lr=0.05),
    "adagrad decay": lambda o, p: o.Adagrad(p, 0.05, 0.01, 0.1, 0.1, 1e-8, maximize=True),
    "adamax": lambda o, p: o.Adamax(p, lr=0.01),
    "adamax decay": lambda o, p: o.Adamax(p, 0.01, (0.5, 0.9), 1e-3, 0.1, maximize=True),
    "asgd": lambda o, p: o.ASGD(p, lr=0.01),
    "asgd average": lambda o, p: o.ASGD(p, 0.02, 0.01, 0.6, 20, 0.1, maximize=True),
    "nadam": lambda o, p: o.NAdam(p, lr=0.01, weight_decay=0.1),
    "nadam decoupled": lambda o, p: o.NAdam(
        p, 0.01, (0.8, 0.99), 1e-6, 0.1, 0.01, decoupled_weight_decay=True, maximize=True
    ),
    "radam": lambda o, p: o.RAdam(p, lr=0.01, weight_decay=0.1),
    "radam decoupled": lambda o, p: o.RAdam(
        p, 0.01, (0.5, 0.9), 1e-6, 0.1, decoupled_weight_decay=True, maximize=True
    ),
    "radam zero betas": lambda o, p: o.RAdam(p, lr=0.01, betas=(0.0, 0.0)),
    "radam long memory": lambda o, p: o.RAdam(p, lr=0.01, betas=(0.9, 0.99999)),
    "rmsprop": lambda o, p: o.RMSprop(p, lr=0.01, weight_decay=0.1),
    "rmsprop momentum": lambda o, p: o.RMSprop(p, 0.01, 0.9, momentum=0.9, maximize=True),
    "rmsprop centered": lambda o, p: o.RMSprop(p, lr=0.01, centered=True),
    "rmsprop both": lambda o, p: o.RMSprop(p, 0.01, 0.95, 1e-6, 0.1, 0.5, centered=True),
    "rprop": lambda o, p: o.Rprop(p, lr=0.01),
    "rprop etas": lambda o, p: o.Rprop(p, 0.1, (0.3, 1.5), (1e-3, 0.2), maximize=True),
    "adafactor": lambda o, p: o.Adafactor(p, lr=0.1, weight_decay=0.1),
    "adafactor eps": lambda o, p: o.Adafactor(p, 0.1, -0.5, (1e-3, 1e-2), 2.0, maximize=True),
}

SCHEDULES = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda epoch: 0.95**epoch),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda e: 1 / (1 + e), lambda e: 0.5 + 0.01 * e]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda epoch: 0.97),
    "step": lambda s, o: s.StepLR(o, 7),
    "step gamma": lambda s, o: s.StepLR(o, step_size=3, gamma=0.7),
    "multistep": lambda s, o: s.MultiStepLR(o, [3, 10, 10, 40], gamma=0.3),
    "constant": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=9),
    "linear": lambda s, o: s.LinearLR(o),
    "linear down": lambda s, o: s.LinearLR(o, 0.9, 0.0, total_iters=20),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, T_max=20),
    "cosine eta": lambda s, o: s.CosineAnnealingLR(o, 30, eta_min=0.001),
    "cosine odd": lambda s, o: s.CosineAnnealingLR(o, 7, eta_min=0.01),
}

# Schedules with tests of their own; the optimizer has momentum.
MORE_SCHEDULES = {
    "polynomial": lambda s, o: s.PolynomialLR(o),
    "polynomial square": lambda s, o: s.PolynomialLR(o, 30, power=2.0),
    "warm restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 7),
    "warm restarts longer": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, 3, eta_min=0.001),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 6, 9),
    "cyclic halves": lambda s, o: s.CyclicLR(
        o, [0.01, 0.02], [0.1, 0.3], 5, mode="triangular2", base_momentum=0.7, max_momentum=0.95
    ),
    "cyclic range": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, 7, mode="exp_range", gamma=0.97, cycle_momentum=False
    ),
    "cyclic function": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, scale_fn=lambda cycle: 1 / cycle),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=60),
    "one cycle linear": lambda s, o: s.OneCycleLR(
        o, [0.1, 0.5], epochs=6, steps_per_epoch=10, pct_start=0.25, anneal_strategy="linear"
    ),
    "one cycle of three": lambda s, o: s.OneCycleLR(
        o, 0.1, 60, three_phase=True, div_factor=10.0, final_div_factor=100.0
    ),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingLR(o, 20), s.StepLR(o, 9)], [5, 25]
    ),
    "sequential at once": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.5), s.CosineAnnealingWarmRestarts(o, 8)], [0]
    ),
    "chained": lambda s, o: s.ChainedScheduler(
        [s.ConstantLR(o, 0.1, 8), s.ExponentialLR(o, 0.95), s.MultiStepLR(o, [10, 20])]
    ),
}

# Epochs, and the rate of the two groups that the recorded schedules begin with.
EPOCHS = 60
RATES = (0.3, 0.02)

# The steps after which parameters are recorded.
RECORDED = (1, 2, 10, 100)


def some_gradients(step):
    """Gradients of which some are missing, those of the first Parameter for the first steps."""
    return [
        g if (step + i) % 3 and (i or step > 4) else None for i, g in enumerate(gradients(step))
    ]
