/** Finds the node that has our keys: Sentinels say who the primary is, nodes of a cluster who has the slot. */
import { endClient, type RedisClient } from './redis-client.ts'
import type { RedisLocation } from './redis-url.ts'

/** Makes a client for one `host:port`; it has not connected. */
type ClientFor = (host: string) => RedisClient

/** Asks all Sentinels at once who the primary is, and takes what the first one says that knows. Resolves to `host:port`. */
export async function askSentinels({ hosts, sentinel }: RedisLocation, clientFor: ClientFor): Promise<string> {
  const clients = hosts.map(clientFor)
  try {
    return await Promise.any(clients.map(client => askSentinel(client, sentinel!)))
  } catch (error) {
    // Not the code of these errors: that no Sentinel listens does not mean that Redis is gone.
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
  if (host === undefined || port === undefined) throw new Error('it is not watched')
  return `${bracketed(host)}:${port}`
}

function bracketed(host: string): string {
  return host.includes(':') ? `[${host}]` : host
}

/**
 * Where the node `asked` of a cluster says that the keys are; undefined if the error says something else. An IPv6 address
 * stands there without brackets, and no host at all means the one that was asked.
 */
export function movedTo(error: unknown, asked: string): string | undefined {
  const [, host, port] = /^(?:MOVED|ASK) \d+ (\S*):(\d+)$/.exec((error as Error).message) ?? []
  if (port === undefined) return undefined
  return `${host === '' ? asked.slice(0, asked.lastIndexOf(':')) : bracketed(host!)}:${port}`
}
