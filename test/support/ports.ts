import { once } from 'node:events'
import { createServer } from 'node:net'

/** Linux and macOS take ports of outgoing connections above this; what we restart must find its port free. */
const BELOW_EPHEMERAL = 32_000
const LOWEST = 12_000
const ATTEMPTS = 100

/** A free port that a listener can leave and take again. */
export async function lastingPort(): Promise<number> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const port = LOWEST + Math.floor(Math.random() * (BELOW_EPHEMERAL - LOWEST))
    if (await isFree(port)) return port
  }
  throw new Error('no free port')
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen({ port, host: '127.0.0.1', exclusive: true })
  try {
    await once(server, 'listening')
  } catch {
    return false
  }
  server.close()
  await once(server, 'close')
  return true
}
