"""A search that waits: start a loader, let it deliver, print the ids of its process and worker, read stdin."""

import sys

from strobe.dataloader import process
from strobe.dataloader.settings import started_by_fork
from strobe.dataloader.train_loader import loader_settings
from strobe.train.watch import train_config

if __name__ == "__main__":
    process.warm_up()
    config = train_config(sys.argv[1:], measuring=True)
    loader = process.LoaderProcess(config, started_by_fork(loader_settings(config)))
    loader.start()
    loader.sample(0.01)
    print(loader.pid, *loader.worker_pids, flush=True)
    sys.stdin.read()
