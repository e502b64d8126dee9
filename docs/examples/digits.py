# %% [markdown]
# # Which pixels make a 4 a 9?
#
# `DeDUCE` changes few pixels, one at a time, towards the wanted class and to where its
# images are among the features of the network. It asks for a network whose features
# keep distances: one with spectral normalisation.

# %%
from sklearn.datasets import load_digits

import holdfast as hf

digits = load_digits()
images = digits.images / 16
labels = digits.target
net = hf.images.SpectralResNet(width=8, epochs=5, batch_size=64)
net.fit(images[:1200], labels[:1200])
print(f"right about {net.score(images[1200:], labels[1200:]):.0%}")

# %% [markdown]
# Six digits that it has not seen, and the digit that each could easily become.

# %%
wanted = {4: 9, 9: 4, 3: 8, 1: 7, 5: 6, 7: 1}
chosen = [1200 + list(labels[1200:]).index(digit) for digit in wanted]
method = hf.DeDUCE().fit(net, images[:1200], labels[:1200])
answers = method.explain(net, images[chosen], target=list(wanted.values()))
print(answers.table()[["label", "target", "status", "pixels"]].to_string(index=False))
answers.grid("digits.png")

# %% [markdown]
# ![Each digit, what it becomes, and the pixels that change](digits.png)
#
# Red pixels became brighter, blue ones darker.
