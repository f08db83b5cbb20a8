/** Finds the node that has our keys: Sentinels know the primary, and the nodes of a cluster know who has the slot. */
import { withBrackets } from '../../protocol/base/host-port.ts'
import { endClient, type RedisClient } from './redis-client.ts'
import type { RedisLocation } from './redis-url.ts'

/** Makes a client for one `host:port` that is not connected yet. */
type ClientFor = (host: string) => RedisClient

/** Asks all Sentinels at once for the primary, and uses the first answer. Resolves to `host:port`. */
export async function askSentinels({ hosts, sentinel }: RedisLocation, clientFor: ClientFor): Promise<string> {
  const clients = hosts.map(clientFor)
  try {
    return await Promise.any(clients.map(client => askSentinel(client, sentinel!)))
  } catch (error) {
    // Drops the errors' codes: if no Sentinel listens, that does not mean that Redis is down.
    const reasons = (error as AggregateError).errors.map(reason => (reason as Error).message || String(reason))
    throw new Error(`no Sentinel knows ${sentinel}: ${[...new Set(reasons)].join('; ')}`)
  } finally {
    for (const client of clients) endClient(client)
  }
}

async function askSentinel(client: RedisClient, name: string): Promise<string> {
  client.on('error', () => {})
  await client.connect()
  const said = await client.sendCommand<unknown>(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name])
  const [host, port] = Array.isArray(said) ? said.map(String) : []
  if (host === undefined || port === undefined) throw new Error('it is not monitored')
  return `${withBrackets(host)}:${port}`
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
