"""Networks: backbones, heads, and the averages and copies of them that serve as targets."""

from ocssl.nn.backbones import build_backbone
from ocssl.nn.convnet import ConvNet
from ocssl.nn.ema import ema_update, frozen_copy
from ocssl.nn.encoder import Encoder, Features, channels_last
from ocssl.nn.heads import Head, mlp, predictor, projector
from ocssl.nn.norm import synchronise
from ocssl.nn.resnet import ResNet18

__all__ = [
    "ConvNet",
    "Encoder",
    "Features",
    "Head",
    "ResNet18",
    "build_backbone",
    "channels_last",
    "ema_update",
    "frozen_copy",
    "mlp",
    "predictor",
    "projector",
    "synchronise",
]
