"""What `safelaunch top` shows of a run: its folder and the pulses of its ranks as rows, and what draws them."""
