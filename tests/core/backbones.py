"""The classes that compute a model here."""

from ragembed.extras import is_installed
from ragembed.models.numpy_bert import NumpyBert
from ragembed.models.transformers_model import TransformersModel

BACKBONES = [NumpyBert, TransformersModel]
if is_installed("openvino"):
    from ragembed.models.openvino_bert import OpenVinoBert

    BACKBONES.append(OpenVinoBert)
