// @module-tag slow
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test, vi } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { findLoss } from '../../client/path-mtu.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { needs } from '../support/needs.ts'

const SCENARIO = join(import.meta.dirname, 'path-mtu/scenario.ts')

async function check(mtu: number, { drops = 'none', via = '', path = process.env.PATH } = {}) {
  const args = ['--net', process.execPath, SCENARIO, String(mtu), drops, via]
  const { stdout } = await promisify(execFile)('unshare', args, { env: { ...process.env, CHECK_PATH: path } })
  const { throughput, mtu: found } = Object.fromEntries(
    (JSON.parse(stdout) as Probe[]).map(probe => [probe.code, probe]),
  )
  return [throughput!.status, found!.status, found!.found]
}

const size = (segment: number, mtu: number, to = 'server') =>
  `segments of ${segment} bytes to the ${to}, path MTU ${mtu} by the kernel`

describe.runIf(needs('netns', 'iptables')).concurrent('the path MTU', () => {
  test.each([
    ['Ethernet', 1500, 1448, 'ok'],
    ['WireGuard', 1420, 1368, 'ok'],
    ['one that IPv6 does not pass', 1200, 1148, 'warn'],
  ])('of %s', async (_, mtu, segment, status) => {
    expect(await check(mtu)).toEqual(['ok', status, `large packets pass; ${size(segment, mtu)}`])
  })

  test.each([
    ['to', 'warn'],
    ['from', 'ok'],
  ])('of jumbo frames, while large packets %s the server vanish', async (drops, throughput) => {
    const lost = `large packets ${drops} the server do not arrive within 2 s, small ones do; ${size(8948, 9000)}`
    expect(await check(9000, { drops })).toEqual([throughput, 'fail', lost])
  })

  test('is that to the proxy, while large packets vanish behind it', async () => {
    const lost = `large packets to the server do not arrive within 2 s, small ones do; ${size(8948, 9000, 'proxy')}`
    expect(await check(9000, { drops: 'to', via: 'proxy' })).toEqual(['warn', 'fail', lost])
  })

  test.each([
    ['no ss', '/none'],
    ['an ss that hangs', join(import.meta.dirname, 'path-mtu/hangs')],
  ])('is unknown with %s', async (_, path) => {
    const unknown = 'large packets pass; their size is unknown: only Linux with ss (iproute2) tells'
    expect(await check(1500, { path })).toEqual(['ok', 'ok', unknown])
  })
})

test('is not waited for once the connection has ended, since its deadline keeps no process alive', async () => {
  vi.spyOn(AbortSignal, 'timeout').mockReturnValue(new AbortController().signal)
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 })
  server.on('connection', socket => socket.on('pong', () => socket.terminate()))
  await once(server, 'listening')
  try {
    const socket = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`)
    await once(socket, 'open')
    await expect(findLoss(socket)).rejects.toThrow('the connection ended')
  } finally {
    server.close()
    vi.restoreAllMocks()
  }
})
