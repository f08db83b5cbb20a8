/** The control endpoint as a client sees it. */
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test, vi } from 'vitest'
import { createAuthority, createClientCertificate } from '../../certs/index.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { SUBPROTOCOL } from '../../protocol/wire/control.ts'
import type { Server } from '../../server/server.ts'
import { callBadly, withoutNodesListener } from '../support/tls-faults.ts'
import { clientCertificate, dial, makeWorld, openWebSocket, startServer } from './fixture.ts'

let server: Server
afterEach(async () => {
  await server.close({ graceMs: 0 })
  vi.restoreAllMocks()
})

test('a client that offers another subprotocol is told ours', async () => {
  server = await startServer()
  const refused = await openWebSocket(server, { protocols: ['sallyport.v9'] }).catch(error => error)
  expect([refused.status, refused.headers['sec-websocket-protocol']]).toEqual([400, SUBPROTOCOL])
})

test("the 101 carries the server's date, by which a client checks its clock", async () => {
  server = await startServer()
  const seen: Array<string | undefined> = []
  const before = Date.now()
  const ws = await openWebSocket(server, { onUpgrade: headers => seen.push(headers.date) })
  const date = Date.parse(seen[0]!)
  expect([date > before - 1000, date <= Date.now()]).toEqual([true, true])
  ws.terminate()
})

test('C6: garbage behind a CONNECT affects nobody', async () => {
  const listeners = withoutNodesListener()
  server = await startServer()
  await callBadly(server.controlAddress!.port, 'CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n')
  expect(listeners).toEqual([1])
})

test('client authorities are loaded again when their file changes, and a bad file keeps the old ones', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-authorities-'))
  const file = join(folder, 'clients.pem')
  const replace = async (text: string) => {
    const said = Promise.withResolvers<string>()
    onLog = said.resolve
    await writeFile(join(folder, 'fresh'), text)
    await rename(join(folder, 'fresh'), file)
    return said.promise
  }
  let onLog: (message: string) => void = () => {}
  const log = (_fields: object, message: string) => void (message.includes('certificate') && onLog(message))
  const made = await makeWorld()
  const other = await createAuthority()
  await writeFile(file, made.authority.certificate)
  const tls = { cert: made.server.certificate, key: made.server.key }
  const logger = { ...noLogger, info: log, error: log }
  server = await startServer({ control: { port: 0, tls, clientCa: { file } }, logger })
  const mine = { certificate: await clientCertificate('demo') }
  const theirs = { certificate: await createClientCertificate(other, { runtime: 'demo' }) }
  const before = await dial(server, mine)
  const next = await dial(server, mine)
  await expect(openWebSocket(server, theirs)).rejects.toThrow()
  const cut = made.authority.certificate.slice(0, 300)
  const bad = ['nonsense', `${other.certificate}\n${cut}`, `${cut}\n${other.certificate}`]
  for (const text of bad) expect(await replace(text)).toContain('the old one stays')
  ;(await openWebSocket(server, mine)).terminate()
  expect(await replace(made.authority.certificate.trimEnd() + other.certificate)).toBe('certificate reloaded')
  for (const one of [mine, theirs]) (await openWebSocket(server, one)).terminate()
  expect(await replace(other.certificate)).toBe('certificate reloaded')
  ;(await openWebSocket(server, theirs)).terminate()
  await expect(openWebSocket(server, mine)).rejects.toThrow()
  expect(before.session.closed).toBe(false)
  // Not all at once, since handshakes take time.
  expect(await before.message('drain')).toMatchObject({ afterMs: 0, deadlineMs: 30_000 })
  expect(await next.message('drain')).toMatchObject({ afterMs: 20, deadlineMs: 30_020 })
  const unknown = [{ controlTLS: tls }, { controlTls: { ...tls, Ca: '' } }] as object[]
  for (const fresh of unknown) await expect(server.reload(fresh)).rejects.toThrow(/is unknown: did you mean/)
  for (const fresh of [tls, { ...tls, ca: undefined }]) {
    await server.reload({ controlTls: fresh })
    ;(await openWebSocket(server, theirs)).terminate()
    await expect(openWebSocket(server, mine)).rejects.toThrow()
  }
  await rm(folder, { recursive: true })
})
