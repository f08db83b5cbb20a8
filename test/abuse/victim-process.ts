/** The server under attack, in its own process (`--expose-gc`). It reports where it listens, and its state on request. */
import { createServer, type Server } from '../../server/index.ts'
import type { VictimOptions, VictimReady, VictimState } from './messages.ts'

declare const gc: () => void

let server: Server | undefined

process.on('message', async (message: { start: VictimOptions } | { sessionEnded: string } | 'state' | 'stats') => {
  if (message === 'state') process.send?.(await state())
  else if (message === 'stats') process.send?.(server!.stats())
  else if ('start' in message) process.send?.(await startVictim(message.start))
  else process.send?.(await sessionEnded(message.sessionEnded))
})

/** The test has ended. */
process.on('disconnect', () => process.exit())

async function startVictim(options: VictimOptions): Promise<VictimReady> {
  server = await createServer(options)
  return { publicPort: server.publicAddress?.port ?? 0, controlPort: server.controlAddress?.port ?? 0 }
}

/** Resolves with the reason when a session of `runtime` has ended. */
function sessionEnded(runtime: string): Promise<string> {
  return new Promise(resolve => {
    const onEnd = (session: { runtime: string; reason: string }) => {
      if (session.runtime !== runtime) return
      server?.off('sessionEnded', onEnd)
      resolve(session.reason)
    }
    server?.on('sessionEnded', onEnd)
  })
}

async function state(): Promise<VictimState> {
  for (let i = 0; i < 3; i++) {
    gc()
    await new Promise(resolve => setImmediate(resolve))
  }
  const { heapUsed, external } = process.memoryUsage()
  const handles: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo()) handles[kind] = (handles[kind] ?? 0) + 1
  return { liveBytes: heapUsed + external, handles, stats: server!.stats() }
}
