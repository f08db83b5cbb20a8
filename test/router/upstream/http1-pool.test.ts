/** Targets that end connections which they have left to be used again. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { fillTarget, parseTarget } from '../../../router/target.ts'
import { Upstreams } from '../../../router/upstream/upstreams.ts'
import { DEAF, UPSTREAM_REQUEST } from '../../support/ends.ts'
import { eventually } from '../../support/until.ts'

/** A target answers one request on each connection until it is `patient`. Then it answers all. */
let patient: boolean
let connections: Socket[]
let upstreams: Upstreams
const target = createServer(socket => {
  connections.push(socket)
  let mayAnswer = true
  socket.on('data', () => {
    if (mayAnswer || patient) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
    mayAnswer = false
    if (!patient) setTimeout(() => socket.destroy(), 20)
  })
})
beforeEach(async () => {
  patient = false
  connections = []
  await once(target.listen(0, '127.0.0.1'), 'listening')
})
afterEach(() => {
  upstreams.close()
  for (const socket of connections) socket.destroy()
  target.close()
})

async function post(): Promise<string> {
  const { port } = target.address() as AddressInfo
  const to = fillTarget(parseTarget(`http://127.0.0.1:${port}`), {}, new Map(), undefined)!
  const options = { connectMs: 60_000, headMs: 60_000, attempts: 0 }
  return await new Promise(resolve => {
    const responseEnd = () => resolve('answered')
    const responseAbort = (error: Error) => resolve(error.message)
    upstreams.forward(to, { ...UPSTREAM_REQUEST, method: 'POST' }, options, { ...DEAF, responseEnd, responseAbort })
  })
}

/** The target ends a connection that nobody uses. */
async function learn(): Promise<void> {
  expect(await post()).toBe('answered')
  await eventually(() => expect(upstreams.stats().connections).toBe(0))
}

it('a target that ends each connection behind its answer gets no request on one that it is about to end', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  await learn()
  for (let i = 0; i < 5; i++) expect(await post()).toBe('answered')
  expect(connections.length).toBe(6)
})

it('connections that it has left open for a while are used', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  await learn()
  patient = true
  await eventually(async () => {
    const before = connections.length
    expect(await post()).toBe('answered')
    expect(connections.length).toBe(before)
  })
})

it('if no other may be opened, any connection is used', async () => {
  upstreams = new Upstreams({ idleMs: 60_000, maxConnectionsPerTarget: 1 })
  await learn()
  patient = true
  for (let i = 0; i < 5; i++) expect(await post()).toBe('answered')
  expect(connections.length).toBe(2)
})

it('a target that restarts gets no more connections than before', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  patient = true
  for (let i = 0; i < 2; i++) expect(await post()).toBe('answered')
  connections[0]!.destroy()
  await eventually(() => expect(upstreams.stats().connections).toBe(0))
  for (let i = 0; i < 5; i++) expect(await post()).toBe('answered')
  expect(connections.length).toBe(2)
})
