/** A tunnel client that asks for answers to pings and never reads them. */
import { Flag, FrameType, HEADER_BYTES, writeHeader } from '../../protocol/wire/yamux/frame.ts'
import { openWebSocket } from '../server/fixture.ts'
import type { World } from './world.ts'

const PINGS = 5000
/** The answers to this many exceed what the kernel and we accept together. */
const MESSAGES = 400

export async function flood(world: World): Promise<void> {
  const ws = await openWebSocket(world.near, { runtime: 'hostile' })
  ws.on('error', () => {})
  const closed = new Promise<void>(resolve => ws.once('close', () => resolve()))
  ws.pause()
  const pings = Buffer.alloc(PINGS * HEADER_BYTES)
  for (let i = 0; i < PINGS; i++) writeHeader(pings, i * HEADER_BYTES, FrameType.ping, Flag.syn, 0, i)
  const isOver = { closed: false }
  void closed.then(() => {
    isOver.closed = true
  })
  for (let i = 0; i < MESSAGES && !isOver.closed && !world.wasFlooded; i++) {
    await new Promise<void>(resolve => ws.send(pings, () => resolve()))
  }
  ws.resume()
  ws.terminate()
  await closed
}
