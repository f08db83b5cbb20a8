/**
 * A client of one node that can be ended at any time. The library's own forgets that it was destroyed while it was connecting:
 * it gets a socket all the same, and keeps it.
 */
import { createClient, type RedisClientOptions } from '@redis/client'
import type { Guard } from '../../protocol/base/guard.ts'

export type RedisClient = ReturnType<typeof createClient>

const withSocket = new WeakSet<RedisClient>()
const ended = new WeakSet<RedisClient>()

/** It has not connected yet. */
export function makeClient(options: RedisClientOptions, guard: Guard): RedisClient {
  const client = createClient(options) as RedisClient
  const connected = guard(() => {
    withSocket.add(client)
    if (ended.has(client)) destroy(client)
  })
  client.once('connect', connected)
  return client
}

export function endClient(client: RedisClient): void {
  ended.add(client)
  if (withSocket.has(client)) destroy(client)
}

function destroy(client: RedisClient): void {
  try {
    client.destroy()
  } catch {
    // It has ended by itself.
  }
}
