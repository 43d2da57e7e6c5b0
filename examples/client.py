#!/usr/bin/env python3
"""A client of Muster in Python. docs/reference/nats-api.md specifies its messages.

    pip install nats-py
    MUSTER_NATS_URL=nats://127.0.0.1:4222 python3 examples/client.py

It needs a cluster with a cell that has 64 MiB of free memory, and leaves nothing behind.
"""

import asyncio
import json
import os
import uuid

import nats
import nats.errors


class Refused(Exception):
    """A refusal: a stable code for programs, a message for people, and all invalid fields."""

    def __init__(self, refusal):
        super().__init__(f"{refusal['code']}: {refusal['message']}")
        self.code = refusal["code"]
        self.fields = refusal["fields"]


# Codes without a known decision: the same request may be repeated.
NOT_NOW = {"Unavailable", "Overloaded"}


class Client:
    """Client of one domain. Domain and name are in the subject of each request, where the server checks permissions."""

    def __init__(self, connection, domain, name):
        self.connection = connection
        self.domain = domain
        self.name = name

    @classmethod
    async def connect(cls, url, domain, name):
        # Inbox of this client. A server with permissions delivers answers to no other.
        inbox = f"muster.inbox.client.{domain}.{name}"
        connection = await nats.connect(url, inbox_prefix=inbox, max_reconnect_attempts=-1)
        return cls(connection, domain, name)

    async def ask(self, subject, message, patience=30.0, timeout=5.0):
        """Sends a request until it is answered, for `patience` seconds. The request must be safe to repeat."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + patience
        while True:
            try:
                answer = await self.connection.request(subject, json.dumps(message).encode(), timeout=timeout)
                answer = json.loads(answer.data)
                if "ok" in answer:
                    return answer["ok"]
                refused = Refused(answer["refused"])
                if refused.code not in NOT_NOW or loop.time() > ends:
                    raise refused
            # No BBS leads, or the answer was lost. The request may have been carried out.
            except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
                if loop.time() > ends:
                    raise
            await asyncio.sleep(0.2)

    async def command(self, verb, body, **envelope):
        """Sends a command such as `lrp.desire`. With its request id it is carried out once, even if repeated."""
        envelope.setdefault("request_id", str(uuid.uuid4()))
        subject = f"muster.client.{self.domain}.{self.name}.{verb}"
        return await self.ask(subject, {"envelope": envelope, "body": body})

    async def query(self, verb, **asked):
        """Sends a query such as `instance.list`."""
        return await self.ask(f"muster.query.client.{self.domain}.{self.name}.{verb}", asked)

    async def rows(self, verb, **asked):
        """Yields all rows of a list, page by page. All pages have the same position."""
        while True:
            page = await self.query(verb, **asked)
            for row in page["rows"]:
                yield row
            if page["next"] is None:
                return
            asked["cursor"] = page["next"]

    async def events(self, after, target):
        """Yields the events of one object after a position, without end. Each read waits for new events."""
        while True:
            asked = {"after": after, "target": target, "wait_ms": 10_000}
            # The timeout of the request is longer than `wait_ms`.
            subject = f"muster.query.client.{self.domain}.{self.name}.events.read"
            page = await self.ask(subject, asked, timeout=15.0)
            for recorded in page["entries"]:
                # With a filter, all entries are `known`. Without one, invalid messages are `unknown`.
                for decision in recorded["entry"]["known"]["decisions"]:
                    for event in decision["events"]:
                        # {"actual": {"started.v1": {..}}} is actual.started.v1
                        [(machine, inner)] = event.items()
                        [(kind, what)] = inner.items()
                        yield recorded["position"], f"{machine}.{kind}", what
            after = page["next"]


def web(instances):
    """Returns a process that runs until it is stopped."""
    return {
        "process_guid": "py-web",
        "domain": "py",
        "instances": instances,
        "memory_mb": 16,
        "action": {"run": {"path": "sleep", "args": ["1000"]}},
    }


async def publish(client):
    """Desires the process, or updates it if it exists. Then refreshes the domain."""
    try:
        done = await client.command("lrp.desire", web(2), reason="the example")
    except Refused as refused:
        if refused.code != "ResourceExists":
            raise
        done = await client.command("lrp.update", {"process_guid": "py-web", "instances": 2})
    await client.command("domain.upsert", {"domain": "py", "ttl_ms": 60_000})
    print(f"desired py-web at position {done['position']}")
    return done


async def until_running(client, count, position):
    """Waits until `count` instances run: lists them, then follows events after the position of the list."""
    while True:
        page = await client.query("instance.list", process_guid="py-web", at_least=position)
        running = [row for row in page["rows"] if row["state"] == "RUNNING" and not row["stopping"]]
        if len(running) == count == len(page["rows"]):
            print(f"{count} instances run at position {page['position']}")
            return page["position"]
        async for position, kind, what in client.events(page["position"], "lrp:py-web"):
            print(f"{position} {kind}")
            break


async def scale(client):
    """Scales with a repeated request. Another request with its id, a conflict and a late one are refused."""
    three = {"process_guid": "py-web", "instances": 3}
    first = await client.command("lrp.update", three, request_id="py-scale")
    again = await client.command("lrp.update", three, request_id="py-scale")
    assert again["version"] == first["version"], "a repeated request gets the first answer"
    await refusal("RequestIdReused", client.command("lrp.update", {**three, "instances": 9}, request_id="py-scale"))
    await refusal("ResourceConflict", client.command("lrp.update", three, expect_version=1))
    await refusal("DeadlinePassed", client.command("lrp.update", {**three, "instances": 4}, timeout_ms=0))
    return first


async def refusal(code, asked):
    """Awaits a request that must be refused with this code."""
    try:
        await asked
    except Refused as refused:
        assert refused.code == code, refused
        print(f"refused: {refused}")
        return refused
    raise AssertionError(f"the request was not refused with {code}")


async def mistakes(client):
    """Sends invalid requests. The refusal lists the path of every invalid field."""
    bad = {**web(-1), "memory": 16, "action": {"run": {"path": ""}}}
    refused = await refusal("InvalidRequest", client.command("lrp.desire", bad))
    assert {field["field"] for field in refused.fields} >= {"body.instances", "body.memory"}, refused.fields
    await refusal("InvalidRequest", client.query("cell.list", process_guid="py-web"))
    await refusal("InvalidRequest", client.query("instance.list", cursor="the second page"))
    await refusal("ResourceNotFound", client.query("lrp.show", id="py-nothing"))


async def pages(client):
    """Reads a list in pages of one row."""
    paged = [row["index"] async for row in client.rows("instance.list", process_guid="py-web", limit=1)]
    assert paged == [0, 1, 2], paged


async def task(client):
    """Runs a task, reads its result, and resolves it."""
    await client.command(
        "task.desire",
        {
            "task_guid": "py-sum",
            "domain": "py",
            "memory_mb": 16,
            "result_file": "sum",
            "action": {"run": {"path": "sh", "args": ["-c", "echo $((40 + 2)) > sum"]}},
        },
    )
    async for _, kind, what in client.events(0, "task:py-sum"):
        if kind == "task.completed.v1":
            break
    row = (await client.query("task.show", id="py-sum"))["row"]
    assert (row["state"], row["failed"], row["result"]) == ("COMPLETED", False, "42\n"), row
    await client.command("task.resolve", {"task_guid": "py-sum"})
    print("the task's result is", row["result"].strip())


async def remove(client):
    """Removes the process, and waits until no instance is left."""
    done = await client.command("lrp.remove", {"process_guid": "py-web"})
    position = done["position"]
    while True:
        page = await client.query("instance.list", process_guid="py-web", at_least=position)
        if not page["rows"]:
            print(f"nothing is left at position {page['position']}")
            return
        async for position, kind, _ in client.events(page["position"], "lrp:py-web"):
            print(f"{position} {kind}")
            break


async def main():
    client = await Client.connect(os.environ["MUSTER_NATS_URL"], "py", "example")
    done = await publish(client)
    await until_running(client, 2, done["position"])
    done = await scale(client)
    await until_running(client, 3, done["position"])
    await pages(client)
    await mistakes(client)
    await task(client)
    await remove(client)
    await client.connection.close()


if __name__ == "__main__":
    asyncio.run(main())
