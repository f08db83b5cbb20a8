/** An upstream that answers before it has read the body, as Go handlers do, behind a real nginx and our router. */
import { mkdtemp, rm } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { nginxFile } from '../../cli/demo/nginx.ts'
import { type RouterService, serveRouter } from '../../router/index.ts'
import { call, RawUpstream } from '../protocol/http/http1/raw.ts'
import { needs } from '../support/needs.ts'
import { runNginx } from '../support/nginx.ts'
import type { ProxyProgram } from '../support/proxy-program.ts'

const MIB = 1024 * 1024
const BODY_BYTES = 24 * MIB
/** What `net/http` reads after an answer before it closes its half, and then waits half a second without reading. */
const GO_READS_BYTES = 256 * 1024
const GO_WAITS_MS = 500

/** Answers 400 once it has this much of the body. */
function goHandler(limit: number): (socket: Socket) => void {
  return socket => {
    let read = 0
    let answered = false
    socket.on('data', chunk => {
      read += chunk.length
      if (!answered && read > limit) {
        answered = true
        socket.write('HTTP/1.1 400 Bad Request\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo long')
      }
      if (!answered || read < limit + GO_READS_BYTES) return
      socket.pause()
      socket.removeAllListeners('data')
      socket.end()
      setTimeout(() => socket.destroy(), GO_WAITS_MS)
    })
  }
}

describe.runIf(needs('nginx')).each(['on', 'off'])('nginx with proxy_request_buffering %s', buffering => {
  let folder: string
  let upstream: RawUpstream
  let service: RouterService
  let nginx: ProxyProgram

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-early-'))
    upstream = await RawUpstream.start(peer => {
      peer.socket.removeAllListeners('data')
      goHandler(2 * MIB)(peer.socket)
    })
    const routes = { routes: [{ name: 'all', match: {}, target: `http://127.0.0.1:${upstream.port}` }] }
    service = await serveRouter({ port: 0, routes })
    nginx = await runNginx(folder, port => config(folder, port, service.address.port, buffering))
  })
  afterAll(async () => {
    await nginx.stop()
    await service.close({ graceMs: 0 })
    upstream.close()
    await rm(folder, { recursive: true, force: true })
  })

  test.each(Array.from({ length: 6 }, (_, n) => n))('the sender receives the 400 (%i)', async () => {
    const sender = await call(nginx.port)
    sender.send(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${BODY_BYTES}\r\n\r\n`)
    const piece = Buffer.alloc(MIB)
    for (let sent = 0; sent < BODY_BYTES && sender.text === ''; sent += MIB) {
      await new Promise(resolve => sender.socket.write(piece, () => resolve(0)))
    }
    expect(await sender.saying('too long')).toMatch(/^HTTP\/1\.1 400 /)
    sender.socket.destroy()
  })
})

function config(folder: string, port: number, router: number, buffering: string): string {
  return nginxFile(
    folder,
    `\
  server {
    listen 127.0.0.1:${port};
    client_max_body_size 0;
    location / {
      proxy_pass http://127.0.0.1:${router};
      proxy_http_version 1.1;
      proxy_request_buffering ${buffering};
    }
  }
`,
  )
}
