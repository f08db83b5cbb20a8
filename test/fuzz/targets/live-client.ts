import { once } from 'node:events'
import { WebSocket } from 'ws'
import { CONNECT_PATH, SUBPROTOCOL } from '../../../protocol/wire/control.ts'
import { DOMAIN } from '../../support/secrets.ts'
import { Calls } from '../live/calls.ts'
import { HostileEnd } from '../live/frames.ts'
import { liveTarget } from '../live/target.ts'
import { ROGUE_RUNTIME, World } from '../live/world.ts'

const MAX_STEPS = 80

/** A tunnel client with a valid token, in service. */
async function enter(world: World): Promise<WebSocket> {
  const token = await world.secrets.token(ROGUE_RUNTIME)
  const ws = new WebSocket(`ws://127.0.0.1:${world.controlPort}${CONNECT_PATH}`, SUBPROTOCOL, {
    headers: { authorization: `Bearer ${token}` },
    perMessageDeflate: false,
  })
  ws.on('error', () => {})
  await Promise.race([once(ws, 'open'), once(ws, 'close')])
  if (ws.readyState !== WebSocket.OPEN) return ws
  const hello = {
    type: 'hello',
    minor: 0,
    software: 'rogue/1',
    instance: 'rogue',
    startedMs: 1,
    lastEpoch: 0,
    connection: 0,
  }
  ws.send(JSON.stringify(hello))
  await once(ws, 'message')
  ws.send(JSON.stringify({ type: 'ready' }))
  return ws
}

/** A hostile tunnel client of a live server: frames and control messages of every kind, beside calls to its runtime. */
export const liveClient = liveTarget(
  'live-client',
  () => World.start(),
  async (world, script) => {
    const peer = new HostileEnd(await enter(world), 'client', ROGUE_RUNTIME, script)
    const calls = new Calls(world, `${ROGUE_RUNTIME}.${DOMAIN}`)
    for (let steps = 0; steps < MAX_STEPS && !script.over; steps++) {
      const turn = script.next() % 8
      if (turn < 2) calls.begin(script, '/')
      else if (turn === 2) calls.disturb(script)
      else await peer.step()
    }
    if (script.next() & 1) calls.leave()
    peer.stop()
    calls.leave()
  },
)
