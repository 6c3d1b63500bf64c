"""The kernel that inflates has a door for kernels only: `inflate.pxd`."""
