"""Networks: backbones, heads, and copies and averages of networks.

>>> backbones.registry.names()
['resnet18', 'convnet', 'efficientnet-lite0']
"""

# The order of registration is the order of lists.
# isort: off

from ocssl.nn import backbones
from ocssl.nn.backbones import build_backbone, register as register_backbone
from ocssl.nn.resnet import ResNet18
from ocssl.nn.convnet import ConvNet
from ocssl.nn.efficientnet import EfficientNetLite0
from ocssl.nn.dropout import Dropout
from ocssl.nn.ema import Average, ema_update, frozen_copy
from ocssl.nn.encoder import Encoder, Features, channels_last
from ocssl.nn.heads import Head, mlp, predictor, projector
from ocssl.nn.norm import synchronise
from ocssl.nn.renormalised import Renormalised

__all__ = [
    "Average",
    "ConvNet",
    "Dropout",
    "EfficientNetLite0",
    "Encoder",
    "Features",
    "Head",
    "Renormalised",
    "ResNet18",
    "backbones",
    "build_backbone",
    "channels_last",
    "ema_update",
    "frozen_copy",
    "mlp",
    "predictor",
    "projector",
    "register_backbone",
    "synchronise",
]
