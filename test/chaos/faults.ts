/** The faults of a deployment. Each resolves when it is over and everything that it affected is back. */
import { setTimeout as wait } from 'node:timers/promises'
import type { Running } from '../cli/process.ts'
import type { ClientNode } from './deployment/client-node.ts'
import type { Deployment } from './deployment/deployment.ts'
import { within } from './deployment/processes.ts'
import type { ServerNode } from './deployment/server-node.ts'
import type { Random } from './random.ts'

/** How long a killed part stays down before it is started again. */
const MISSED_MS = 1000
/** Kubernetes calls it `minReadySeconds`. */
const READY_MS = 1000
/** A part that is restarted in place should be back within this time, at the usual pace. Requests are held for longer than that. */
const BACK_MS = 3000

/** A rolling update of the client: the new instance takes over, then the old one is asked to stop. */
export async function updateClient(client: ClientNode): Promise<void> {
  const old = client.child!
  client.child = await client.startInstance()
  await client.stop(old)
}

/** A restart in place: the old instance ends first. */
export async function restartClient(deployment: Deployment, client: ClientNode): Promise<void> {
  await client.stop()
  const endedMs = performance.now()
  client.child = await client.startInstance()
  const awayMs = performance.now() - endedMs
  await client.bothConnected(client.child)
  if (awayMs > BACK_MS * deployment.options.pace)
    deployment.notes.push(`a client was back only after ${(awayMs / 1000).toFixed(1)} s`)
}

/** A second instance takes over and leaves. The first, meanwhile a standby, is active again. */
export async function takeOver(client: ClientNode): Promise<void> {
  const second = await client.startInstance()
  await client.stop(second)
}

/** One replica after another is stopped and started again. Each is ready for a moment before the next one stops. */
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

/** The process freezes, as on a machine that swaps or migrates, and continues. */
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

/** The directory is down for a while, and returns empty. */
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

/** A new key is added, tokens are signed with it, and the old key is removed. */
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

/** A new certificate for both listeners of every server. */
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

/** The network resets one of the client's connections. */
export async function cutConnection(client: ClientNode, random: Random): Promise<void> {
  const connection = random.pick(await client.inService())
  const gone = nextLines(client.child!, 'disconnected')
  connection.cut()
  await gone
  await client.inService()
}

/** One of the client's connections goes silent, and stays so until the client has replaced it. */
export async function blackHole(client: ClientNode, random: Random): Promise<void> {
  const connection = random.pick(await client.inService())
  const gone = nextLines(client.child!, 'disconnected')
  connection.silent = true
  await gone
  await client.inService()
  connection.cut()
}

/** Resolves when the process has logged `msg` this many times from now on. */
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
