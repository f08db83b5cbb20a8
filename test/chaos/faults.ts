/** What is done to a deployment: each fault resolves when it is over and everything that it touched is back. */
import { setTimeout as wait } from 'node:timers/promises'
import type { Running } from '../cli/process.ts'
import type { ClientNode } from './deployment/client-node.ts'
import type { Deployment } from './deployment/deployment.ts'
import { within } from './deployment/processes.ts'
import type { ServerNode } from './deployment/server-node.ts'
import type { Random } from './random.ts'

/** How long a killed part is missed before somebody starts it again. */
const MISSED_MS = 1000
/** Kubernetes calls it `minReadySeconds`. */
const READY_MS = 1000
/** A part that is restarted in place should be back in this time; requests are held for longer than that. */
const BACK_MS = 3000

/** The new instance takes over, then the old one is asked to end: a rolling update of the client. */
export async function updateClient(client: ClientNode): Promise<void> {
  const old = client.child!
  client.child = await client.startInstance()
  await client.stop(old)
}

/** The old instance ends first: a restart in place. */
export async function restartClient(deployment: Deployment, client: ClientNode): Promise<void> {
  await client.stop()
  const endedMs = performance.now()
  client.child = await client.startInstance()
  const awayMs = performance.now() - endedMs
  await client.bothConnected(client.child)
  if (awayMs > BACK_MS) deployment.notes.push(`a client was back only after ${(awayMs / 1000).toFixed(1)} s`)
}

/** A second instance takes over, and goes: the first stood by and is active again. */
export async function takeOver(client: ClientNode): Promise<void> {
  const second = await client.startInstance()
  await client.stop(second)
}

/** One replica after the other is asked to end, and starts anew; each is ready for a moment before the next one goes. */
export async function updateServers(servers: readonly ServerNode[]): Promise<void> {
  for (const server of servers) {
    await restartServer(server)
    await wait(READY_MS)
  }
}

export async function restartServer(server: ServerNode): Promise<void> {
  await server.stop()
  await server.start()
}

export async function killServer(server: ServerNode): Promise<void> {
  await server.kill()
  await wait(MISSED_MS)
  await server.start()
}

/** It stands still, as on a machine that swaps or moves, and goes on. */
export async function pauseServer(server: ServerNode, ms: number): Promise<void> {
  const child = server.child!
  child.kill('SIGSTOP')
  await wait(ms)
  child.kill('SIGCONT')
}

export async function killClient(client: ClientNode): Promise<void> {
  await client.child!.end('SIGKILL')
  await client.start()
}

/** The directory is gone for a while, and comes back empty. */
export async function killRedis({ redis }: Deployment): Promise<void> {
  await redis!.kill()
  await wait(MISSED_MS)
  await redis!.start()
  await wait(MISSED_MS)
}

export async function pauseRedis({ redis }: Deployment, ms: number): Promise<void> {
  redis!.pause()
  await wait(ms)
  redis!.resume()
}

export async function renewToken(deployment: Deployment, client: ClientNode): Promise<void> {
  const child = client.child!
  const fresh = nextLines(child, 'the session has a fresh token', 2)
  await deployment.files.renewToken(client.runtime)
  await fresh
}

/** A new key beside the old one, new tokens, the old key out. */
export async function rotateKeys(deployment: Deployment): Promise<void> {
  const { files, servers, clients } = deployment
  const read = () => Promise.all(servers.map(server => nextLines(server.child!, 'key set read')))
  const added = read()
  await files.addKey()
  await added
  await Promise.all(clients.map(client => renewToken(deployment, client)))
  const dropped = read()
  await files.dropOldKey()
  await dropped
}

/** A new certificate on both listeners of every server. */
export async function rotateCertificate({ files, servers }: Deployment): Promise<void> {
  const loaded = Promise.all(servers.map(server => nextLines(server.child!, 'certificate reloaded', 2)))
  await files.renewCertificate()
  await loaded
}

export async function reloadRoutes(deployment: Deployment): Promise<void> {
  const { upstreams, clients, router, files } = deployment
  for (const [i, { runtime, port }] of upstreams.entries()) {
    const isRouted = i === upstreams.length - 1
    const loaded = nextLines(isRouted ? router!.child : clients[i]!.child!, 'routes reloaded')
    await files.writeRoutes(runtime, `http://127.0.0.1:${port}`)
    await loaded
  }
}

/** One of the client's connections is reset by the network. */
export async function cutConnection(client: ClientNode, random: Random): Promise<void> {
  const connection = random.pick(await client.inService())
  const gone = nextLines(client.child!, 'disconnected')
  connection.cut()
  await gone
  await client.inService()
}

/** One of the client's connections falls silent, and stays so until the client has others. */
export async function blackHole(client: ClientNode, random: Random): Promise<void> {
  const connection = random.pick(await client.inService())
  const gone = nextLines(client.child!, 'disconnected')
  connection.silent = true
  await gone
  await client.inService()
  connection.cut()
}

/** The process says `msg` so many times from now on. */
async function nextLines(child: Running, msg: string, times = 1): Promise<void> {
  const seen = new Set(child.lines)
  for (let i = 0; i < times; i++) {
    seen.add(
      await within(
        child,
        `"${msg}"`,
        child.line(line => line.msg === msg && !seen.has(line)),
      ),
    )
  }
}
