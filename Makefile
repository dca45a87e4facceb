# `make bench` runs all benchmarks (in ten minutes on two quiet cores) and writes benchmarks/RESULTS.md.
#   RUNS    runs of each launcher that count
#   PYTHON  an interpreter that has safelaunch and torch
RUNS = 2
PYTHON = .venv/bin/python
RESULTS = benchmarks/results
BENCH = $(PYTHON) benchmarks
SAVE = --json $(RESULTS)

.PHONY: bench
bench:
	mkdir -p $(RESULTS)
	$(BENCH)/heartbeat.py $(SAVE)/heartbeat.json
	$(BENCH)/stopping.py $(SAVE)/stopping.json
	$(BENCH)/tracing.py --ranks 2 $(SAVE)/tracing.json
	$(BENCH)/startup.py --ranks 1 8 --kinds bare torch --runs $(RUNS) $(SAVE)/startup.json
	$(BENCH)/startup.py --ranks 2 4 --kinds torch --runs 1 $(SAVE)/startup_more.json
	$(BENCH)/startup.py --ranks 8 --kinds gloo --runs 1 $(SAVE)/startup_gloo.json
	$(BENCH)/restart.py --runs $(RUNS) $(SAVE)/restart.json
	$(BENCH)/overhead.py --steps 200 --runs $(RUNS) $(SAVE)/overhead.json
	$(BENCH)/supervisor.py $(SAVE)/supervisor.json
	$(BENCH)/logs.py --runs $(RUNS) $(SAVE)/logs.json
	$(BENCH)/crash_latency.py --runs 1 $(SAVE)/crash_latency.json
	$(BENCH)/hang_latency.py --kinds sleep one_rank_section $(SAVE)/hang_latency.json
	$(BENCH)/preflight.py --runs 1 $(SAVE)/preflight.json
	$(BENCH)/diagnose_scale.py --ranks 256 --torch-up-to 0 $(SAVE)/diagnose_scale.json
	$(BENCH)/scale.py --nodes 8 64 256 $(SAVE)/scale.json
	$(BENCH)/daylong.py --hours 3 $(SAVE)/daylong.json
	$(BENCH)/render.py $(RESULTS) benchmarks/RESULTS.md
