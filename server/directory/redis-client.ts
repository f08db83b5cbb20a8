/**
 * A client of one node that can be ended at any time. The library leaves a connecting socket to its deadline, and keeps one
 * that connects after the end.
 */
import { createClient, type RedisClientOptions, SocketClosedUnexpectedlyError } from '@redis/client'

export type RedisClient = ReturnType<typeof createClient>

const endings = new WeakMap<RedisClient, AbortController>()

/** It has not connected yet. */
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

/** The connection ended after all that was sent on it. If it is reset, some may be lost. */
export function isClosedByRedis(error: Error): boolean {
  return error instanceof SocketClosedUnexpectedlyError
}
