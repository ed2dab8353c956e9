"""Chains of narrow layers as one kernel, from PyTorch. docs/pipelines.md says more.

    model = torch.compile(model, backend="tally")            # with torch.no_grad(): y = model(x)
    python -m tally.pipelines explain model.py:make          # per chain: plan and times, or why it is refused

Where the package is not installed but only on the path, `backend=tally.pipelines.backend.tally` is the same.
Importing this package imports no PyTorch.
"""
