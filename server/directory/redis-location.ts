/** Finds the node that has our keys: Sentinels know the primary, and the nodes of a cluster know who has the slot. */
import { setTimeout as pause } from 'node:timers/promises'
import { withBrackets } from '../../protocol/base/host-port.ts'
import { endClient, type RedisClient } from './redis-client.ts'
import type { RedisLocation } from './redis-url.ts'

/** Makes a client for one `host:port` that is not connected yet. */
type ClientFor = (host: string) => RedisClient

/**
 * Asks all Sentinels at once for the primary, and yields each `host:port` that they name. One that was cut off names an old primary. If the
 * first address was no good, the other Sentinels have `othersMs` left, since one that is down never answers. Addresses that were silent, at
 * `silentAt`, come after them, the one that was silent last as the last.
 */
export async function* askSentinels(
  { hosts, sentinel }: RedisLocation,
  clientFor: ClientFor,
  silentAt: ReadonlyMap<string, number>,
  othersMs: number,
): AsyncGenerator<string> {
  const clients = hosts.map(clientFor)
  const answers = clients.map((client, i) => askSentinel(client, sentinel!, i))
  const left = new Map(answers.entries())
  const named = new Set<string>()
  const putOff: string[] = []
  let late: Promise<undefined> | undefined
  try {
    while (left.size > 0) {
      const answer = await Promise.race(late === undefined ? left.values() : [...left.values(), late])
      if (answer === undefined) break
      left.delete(answer.i)
      if (answer.host === undefined || named.has(answer.host)) continue
      named.add(answer.host)
      if (silentAt.has(answer.host)) putOff.push(answer.host)
      else yield answer.host
      late ??= pause(othersMs, undefined, { ref: false })
    }
    yield* bySilence(putOff, silentAt)
  } finally {
    for (const client of clients) endClient(client)
  }
  if (named.size > 0) return
  const problems = (await Promise.all(answers)).map(({ problem }) => problem)
  // Without the errors' codes: if no Sentinel listens, that does not mean that Redis is down.
  throw new Error(`no Sentinel knows ${sentinel}: ${[...new Set(problems)].join('; ')}`)
}

/** Those that were never silent come first, then those whose last silence is longest ago. */
export function bySilence(hosts: readonly string[], silentAt: ReadonlyMap<string, number>): string[] {
  return hosts.toSorted((a, b) => (silentAt.get(a) ?? 0) - (silentAt.get(b) ?? 0))
}

interface Answer {
  /** Which Sentinel it is. */
  readonly i: number
  readonly host?: string
  readonly problem?: string
}

async function askSentinel(client: RedisClient, name: string, i: number): Promise<Answer> {
  client.on('error', () => {})
  try {
    await client.connect()
    const said = await client.sendCommand<unknown>(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name])
    const [host, port] = Array.isArray(said) ? said.map(String) : []
    if (host === undefined || port === undefined) return { i, problem: 'it is not monitored' }
    return { i, host: `${withBrackets(host)}:${port}` }
  } catch (error) {
    return { i, problem: (error as Error).message || String(error) }
  }
}

/**
 * Where the node `asked` of a cluster says that the keys are. `undefined` if the error is another one. An IPv6 address comes without
 * brackets, and an empty host means the one that was asked.
 */
export function movedTo(error: unknown, asked: string): string | undefined {
  const [, host, port] = /^(?:MOVED|ASK) \d+ (\S*):(\d+)$/.exec((error as Error).message) ?? []
  if (port === undefined) return undefined
  return `${host === '' ? asked.slice(0, asked.lastIndexOf(':')) : withBrackets(host!)}:${port}`
}
