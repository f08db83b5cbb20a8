import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type WebSocket, WebSocketServer } from 'ws'
import { createTunnel, type Tunnel } from '../../../client/index.ts'
import { SUBPROTOCOL } from '../../../protocol/wire/control.ts'
import { HostileEnd } from '../live/frames.ts'
import { liveTarget } from '../live/target.ts'
import { ROGUE_RUNTIME, World } from '../live/world.ts'

const MAX_STEPS = 80

/** A live world, and in the same process a client that dials a hostile server. */
class Lure {
  readonly #world: World
  readonly #server: Server
  readonly #tunnel: Tunnel
  readonly #arrived: WebSocket[] = []
  #onArrival: ((ws: WebSocket) => void) | undefined

  private constructor(world: World, server: Server, tunnel: Tunnel) {
    this.#world = world
    this.#server = server
    this.#tunnel = tunnel
    const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => SUBPROTOCOL })
    server.on('upgrade', (request, socket, head) =>
      sockets.handleUpgrade(request, socket, head, ws => {
        ws.on('error', () => {})
        if (this.#onArrival === undefined) this.#arrived.push(ws)
        else this.#onArrival(ws)
        this.#onArrival = undefined
      }),
    )
  }

  static async start(): Promise<Lure> {
    const world = await World.start()
    const server = createServer()
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const port = (server.address() as AddressInfo).port
    const tunnel = createTunnel({
      url: `ws://127.0.0.1:${port}`,
      token: () => world.secrets.token(ROGUE_RUNTIME),
      target: world.router,
      proxy: '',
      connections: 1,
      backoff: { firstMs: 5, capMs: 20 },
      random: () => 0.01,
      limits: { sessionBufferBytes: 512 * 1024 },
      logger: world.logger,
    })
    return new Lure(world, server, tunnel)
  }

  /** The client's next session, which has sent hello. */
  async next(): Promise<WebSocket> {
    for (;;) {
      const ws = this.#arrived.shift() ?? (await new Promise<WebSocket>(resolve => (this.#onArrival = resolve)))
      if (ws.readyState === ws.OPEN) return ws
    }
  }

  async check(): Promise<void> {
    for (const ws of this.#arrived.splice(0)) ws.terminate()
    await this.#world.check(() => {
      const { exchanges, sessions } = this.#tunnel.stats()
      return {
        'lured client: exchanges': exchanges.live,
        'lured client: streams': sessions.reduce((sum, { streams }) => sum + streams, 0),
      }
    })
  }

  async stop(): Promise<void> {
    await this.#tunnel.close({ graceMs: 0 })
    this.#server.close()
    this.#server.closeAllConnections()
    await this.#world.stop()
  }
}

/** A hostile server of a live client: frames and control messages of every kind, and arbitrary requests. */
export const liveServer = liveTarget(
  'live-server',
  () => Lure.start(),
  async (lure, script) => {
    const ws = await lure.next()
    const welcome = {
      type: 'welcome',
      minor: 0,
      software: 'rogue/1',
      session: 's',
      replica: 'r',
      runtime: ROGUE_RUNTIME,
      epoch: 0,
    }
    const peer = new HostileEnd(ws, 'server', ROGUE_RUNTIME, script)
    if (script.next() % 16 !== 0) {
      ws.send(JSON.stringify({ ...welcome, ...(script.next() % 16 === 0 ? { runtime: 'another' } : {}) }))
      ws.send(JSON.stringify({ type: 'ready', epoch: 1, active: true }))
    }
    for (let steps = 0; steps < MAX_STEPS && !script.over && !peer.over; steps++) await peer.step()
    peer.stop()
  },
)
