import { fileURLToPath } from 'node:url'
import { type Started, start } from '../lib/processes.ts'

export interface Relay extends Started {
  readonly port: number
}

/** A process that simulates a wide-area network: `roundTripMs` both ways together, `bytesPerSecond` in each direction. */
export async function startRelay(port: number, line: { roundTripMs: number; bytesPerSecond: number }): Promise<Relay> {
  let ownPort = 0
  const relay = await start({
    name: 'relay',
    batch: true,
    command: process.execPath,
    args: [
      fileURLToPath(new URL('process.ts', import.meta.url)),
      ...[port, line.roundTripMs, line.bytesPerSecond].map(String),
    ],
    ready: text => {
      ownPort = Number(text)
      return true
    },
  })
  return { ...relay, port: ownPort }
}
