"""The task's network as a PyTorch module, for the peers that want one."""

import torch


def network_from(task, softmax=False):
    """Rebuild the trained network (float32) from the stored weights; logits unless softmax is asked
    for."""
    depth = sum(name[0] == "W" for name in task)
    steps = []
    for i in range(1, depth + 1):
        weight = torch.tensor(task[f"W{i}"], dtype=torch.float32)
        layer = torch.nn.Linear(*weight.shape)
        layer.weight.data = weight.T.contiguous()
        layer.bias.data = torch.tensor(task[f"b{i}"], dtype=torch.float32)
        steps += [layer, torch.nn.ReLU()]
    steps = steps[:-1] + ([torch.nn.Softmax(dim=-1)] if softmax else [])
    return torch.nn.Sequential(*steps).eval()
