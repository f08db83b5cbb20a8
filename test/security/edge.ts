/**
 * What the tests of the public edge share: a real tunnel from a plain edge to upstreams that record every byte, with
 * another tenant's runtime beside the one under attack.
 */
import { once } from 'node:events'
import { createConnection } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Server, ServerOptions } from '../../server/index.ts'
import { RawPeer, RawUpstream } from '../protocol/http/http1/raw.ts'
import { startPair } from '../support/pair.ts'
import { DOMAIN, makeSecrets, type Secrets } from '../support/secrets.ts'

/** The runtime under attack, and another tenant's. */
export const HOST = `demo.${DOMAIN}`
export const OTHER_HOST = `other.${DOMAIN}`

export const canary = (host: string) => `GET /canary HTTP/1.1\r\nHost: ${host}\r\n\r\n`
export const CANARY = canary(HOST)
export const OTHER_CANARY = canary(OTHER_HOST)

let secrets: Promise<Secrets> | undefined
const open: (() => unknown)[] = []

/** For `afterEach`. */
export async function stopEdges(): Promise<void> {
  for (const stop of open.splice(0).reverse()) await stop()
}

export interface Edge {
  readonly port: number
  readonly server: Server
  /** What the attacked runtime's upstream received. */
  readonly upstream: RawUpstream
  /** What the other tenant's received. */
  readonly others: RawUpstream
  /** A connection to the edge. */
  call(options?: { allowHalfOpen: boolean }): Promise<RawPeer>
  /** A client for one more runtime. */
  connect(runtime: string, target: string): Promise<unknown>
  /** Another caller's request to the other tenant is answered, and nothing else arrived there. */
  othersUnhurt(): Promise<void>
}

/** `onPeer` handles each connection at the upstream; without it, the upstream answers each request, naming its path. */
export async function startEdge(
  onPeer: (peer: RawPeer) => void = answering,
  options: Partial<ServerOptions> = {},
  isTls = false,
): Promise<Edge> {
  secrets ??= makeSecrets()
  const { server: tls } = await secrets
  const upstream = await RawUpstream.start(onPeer)
  const others = await RawUpstream.start(answering)
  const target = (of: RawUpstream) => `http://127.0.0.1:${of.port}`
  const pair = await startPair({
    target: target(upstream),
    secrets: await secrets,
    server: { public: { port: 0, ...(isTls ? { tls } : {}) }, ...options },
    client: { connections: 1 },
  })
  await pair.connect('other', target(others), { connections: 1 })
  open.push(
    () => pair.stop(),
    () => upstream.close(),
    () => others.close(),
  )
  const port = pair.server.publicAddress!.port
  const call: Edge['call'] = options => callEdge(port, isTls, options)
  const othersUnhurt = async () => {
    const caller = await call()
    caller.send(OTHER_CANARY)
    const answer = await caller.saying('answer to /canary')
    if (!answer.startsWith('HTTP/1.1 200 ')) throw new Error(`the other tenant was answered ${answer}`)
    const targets = [...others.text.matchAll(/^(\S+ \S+) HTTP\/1\.1\r\n/gm)].map(([, target]) => target)
    if (targets.some(one => one !== 'GET /canary')) throw new Error(`the other tenant got ${targets.join(', ')}`)
  }
  const connect: Edge['connect'] = (runtime, to) => pair.connect(runtime, to, { connections: 1 })
  return { port, server: pair.server, upstream, others, call, connect, othersUnhurt }
}

async function callEdge(port: number, isTls: boolean, options?: { allowHalfOpen: boolean }): Promise<RawPeer> {
  const to = { port, host: '127.0.0.1', noDelay: true, ...options }
  const socket = isTls ? connectTls({ ...to, rejectUnauthorized: false }) : createConnection(to)
  open.push(() => socket.destroy())
  const peer = new RawPeer(socket)
  await once(socket, isTls ? 'secureConnect' : 'connect')
  return peer
}

/** Answers requests in the order of their arrival, naming their paths. */
export function answering(peer: RawPeer): void {
  let answered = 0
  peer.socket.on('data', () => {
    const targets = [...peer.text.matchAll(/([A-Z]+) (\S+) HTTP\/1\.1\r\n/g)]
    for (; answered < targets.length; answered++) {
      const body = `answer to ${targets[answered]![2]}`
      peer.send(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
    }
  })
}

/** Answers the canary as it should, and everything else with these bytes. */
export function answeringWith(answer: string, wait = /\r\n\r\n/): (peer: RawPeer) => void {
  return peer => {
    let seen = 0
    peer.socket.on('data', () => {
      const fresh = peer.text.slice(seen)
      if (!wait.test(fresh)) return
      seen = peer.text.length
      if (fresh.includes('/canary')) peer.send('HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\nanswer to /canary')
      else peer.send(answer)
    })
  }
}
