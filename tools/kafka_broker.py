"""A real Apache Kafka broker on loopback, alone in its cluster (KRaft), for tests and benchmarks.

    python -m tools.kafka_broker FOLDER [PORT]      runs until a signal and says its address (port 9092)

Maven fetches its jars. One process, ended by its own id.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.free_port import find_free_port
from tools.maven import fetch_jars
from tools.server_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

POM = Path(__file__).with_name("kafka") / "pom.xml"
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_FORMAT_S = 240.0  # it ends only what would never end
_JAVA = ("java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},LOGIN://127.0.0.1:{login},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config=\
  org.apache.kafka.common.security.plain.PlainLoginModule required {users};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.cleaner.backoff.ms=200
file.delete.delay.ms=100
"""


class KafkaBroker(ServerProcess):
    """One broker and its folder. `start` it, `kill` it (as a crash would), `stop` it.

    At `address` everybody may do everything, at `login_address` each user (by SASL, PLAIN) what ACLs allow.
    """

    def __init__(
        self, folder: Path, port: int | None = None, users: Mapping[str, str] | None = None
    ) -> None:
        """Format its folder; `users` are passwords by name. Raises JarsUnavailableError, RuntimeError."""
        java = [*_JAVA, f"{fetch_jars(POM, 'kafka')}/*"]
        port = port or find_free_port(3)
        self.login_address = f"127.0.0.1:{port + 2}"
        settings = folder.absolute() / "server.properties"
        super().__init__([*java, "kafka.Kafka", str(settings)], folder, port)
        logs = settings.with_name("logs")
        users = users or {"nobody": "nobody"}  # the listener wants one
        jaas = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        settings.write_text(
            _PROPERTIES.format(
                port=port, controller=port + 1, login=port + 2, users=jaas, logs=logs
            )
        )
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(settings)],
            capture_output=True, text=True, timeout=_FORMAT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"the folder is not formatted: {done.stdout}{done.stderr}"[:2000])


def main() -> None:
    broker = KafkaBroker(Path(sys.argv[1]), int((sys.argv[2:] or ["9092"])[0]))
    broker.start()
    print(broker.address, flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        broker.stop()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
