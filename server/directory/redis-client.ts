/**
 * A client of one Redis node that can be ended at any time. The library itself would let a connecting socket run to its deadline,
 * and keep it if it connects after the end.
 */
import { createClient, type RedisClientOptions, SocketClosedUnexpectedlyError } from '@redis/client'

export type RedisClient = ReturnType<typeof createClient>

const endings = new WeakMap<RedisClient, AbortController>()

/** Makes a client that is not connected yet. */
export function makeClient(options: RedisClientOptions): RedisClient {
  const ending = new AbortController()
  const socket = { ...options.socket, signal: ending.signal } as NonNullable<RedisClientOptions['socket']>
  const client = createClient({ ...options, socket }) as RedisClient
  endings.set(client, ending)
  return client
}

export function endClient(client: RedisClient): void {
  endings.get(client)!.abort()
  try {
    client.destroy()
  } catch {
    // It has ended by itself.
  }
}

/** Whether Redis closed the connection, after sending everything. If it is reset instead, some data may be lost. */
export function isClosedByRedis(error: Error): boolean {
  return error instanceof SocketClosedUnexpectedlyError
}
