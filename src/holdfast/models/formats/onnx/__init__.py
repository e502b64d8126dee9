"""ONNX files, read and run by this library itself."""
