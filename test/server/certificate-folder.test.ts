/** Certificates by server name, from a folder: over real TLS, with files that appear, change, break and disappear. */
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createServerCertificate } from '../../certs/index.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { CertificateFolder } from '../../server/certificate-folder.ts'
import type { ServerOptions } from '../../server/options.ts'
import type { Server } from '../../server/server.ts'
import { until } from '../support/until.ts'
import { always, CONTROL_NAME, call, DOMAIN, dial, makeWorld, startServer, token } from './fixture.ts'

let folder: string
let server: Server
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-folder-'))
})
afterEach(async () => {
  await server?.close({ graceMs: 0 })
  await rm(folder, { recursive: true })
})

const errors: string[] = []
const logger = { ...noLogger, error: (fields: object) => errors.push((fields as { err: Error }).err.message) }

async function start(options: Partial<ServerOptions> = {}): Promise<void> {
  errors.length = 0
  const made = await makeWorld()
  const tls = { cert: made.server.certificate, key: made.server.key }
  server = await startServer({ public: { port: 0, tls, tlsFolder: folder }, ownHosts: true, logger, ...options })
}

async function put(name: string, hosts: string[], days = 30): Promise<void> {
  const { certificate, key } = await createServerCertificate((await makeWorld()).authority, { hosts, validDays: days })
  // As a renewal should do it: the key first, each file in one step.
  for (const [path, text] of [
    [`${name}.key`, key],
    [`${name}.crt`, certificate],
  ] as const) {
    await writeFile(join(folder, `${path}.new`), text)
    await rename(join(folder, `${path}.new`), join(folder, path))
  }
}

/** Names in the certificate that is shown for this server name. */
async function shown(servername: string, options: ConnectionOptions = {}): Promise<string> {
  const { host, port } = server.publicAddress!
  const socket: TLSSocket = connect({ host, port, servername, rejectUnauthorized: false, ...options })
  await once(socket, 'secureConnect')
  const { subjectaltname = '' } = socket.getPeerCertificate()
  socket.destroy()
  return subjectaltname.replaceAll('DNS:', '')
}

const isOurs = expect.stringContaining(`*.${DOMAIN}`)

test("each name gets its own certificate, with TLS 1.2 and 1.3 and in any case; other names get the listener's", async () => {
  await put('one', ['hooks.customer.example', 'customer.example'])
  await put('wild', ['*.other.example'])
  await mkdir(join(folder, 'mounted'))
  await put('mounted/tls', ['mounted.example'])
  await start()
  for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
    expect(await shown('hooks.customer.example', { maxVersion })).toBe('hooks.customer.example, customer.example')
  }
  expect(await shown('HOOKS.customer.example')).toBe('hooks.customer.example, customer.example')
  expect(await shown('a.other.example')).toBe('*.other.example')
  expect(await shown('mounted.example')).toBe('mounted.example')
  for (const name of [
    'a.b.other.example',
    'other.example',
    'x.customer.example',
    `a.${DOMAIN}`,
    'nobody.example',
    '',
  ]) {
    expect(await shown(name)).toEqual(isOurs)
  }
})

test("a caller of a host reaches its runtime under the host's certificate, over HTTP/1.1, also on an address shared through --control.host", async () => {
  await put('one', ['hooks.customer.example'])
  const made = await makeWorld()
  const tls = { cert: made.server.certificate, key: made.server.key }
  await start({ control: { tls, hostName: CONTROL_NAME } })
  const bearer = await token('a', { hosts: ['hooks.customer.example'] })
  await dial(server, { token: bearer, handler: always('a') })
  const name = 'hooks.customer.example'
  // The certificate is checked against the name.
  const answer = await call(server, name, '/', { ca: made.authority.certificate, servername: name })
  expect([answer.status, answer.text]).toEqual([200, 'a'])
  expect(Object.keys(server.stats().certificates).sort()).toEqual(['control', 'hosts', 'public'])
})

test('C4 files that appear, change and disappear take effect without a restart; a broken one leaves the previous one in force', async () => {
  await start()
  expect(await shown('hooks.customer.example')).toEqual(isOurs)
  await put('one', ['hooks.customer.example'])
  await until(async () => (await shown('hooks.customer.example')) === 'hooks.customer.example')
  await put('one', ['hooks.customer.example', 'more.customer.example'])
  await until(async () => (await shown('more.customer.example')) === 'hooks.customer.example, more.customer.example')
  await writeFile(join(folder, 'one.crt'), 'nonsense')
  expect(await server.reload()).toBe(false)
  expect(errors).toContain(`the certificate ${join(folder, 'one.crt')} is not valid PEM`)
  await put('two', ['two.example'])
  await until(async () => (await shown('two.example')) === 'two.example')
  expect(await shown('more.customer.example')).toBe('hooks.customer.example, more.customer.example')
  await rm(join(folder, 'one.crt'))
  await until(async () => (await shown('more.customer.example')).includes(DOMAIN))
  expect(await server.reload()).toBe(true)
})

test('C4 a pair that appears long after its subfolder takes effect, and so does its return', async () => {
  await mkdir(join(folder, 'below'))
  await start()
  for (let times = 0; times < 2; times++) {
    // So that the server reads the folder once more, without the pair.
    await writeFile(join(folder, `${times}`), '')
    await pause(2500)
    await put('below/tls', ['hooks.customer.example'])
    await until(async () => (await shown('hooks.customer.example')) === 'hooks.customer.example')
    await rm(join(folder, 'below/tls.crt'))
    await until(async () => (await shown('hooks.customer.example')).includes(DOMAIN))
  }
})

test('a volume that Kubernetes swaps is read again', async () => {
  await mkdir(join(folder, '..v1'))
  await mkdir(join(folder, '..v2'))
  await put('..v1/tls', ['hooks.customer.example'])
  await put('..v2/tls', ['hooks.customer.example', 'v2.example'])
  await symlink('..v1', join(folder, '..data'))
  await symlink('..data/tls.crt', join(folder, 'tls.crt'))
  await symlink('..data/tls.key', join(folder, 'tls.key'))
  await start()
  expect(await shown('hooks.customer.example')).toBe('hooks.customer.example')
  await symlink('..v2', join(folder, '..next'))
  await rename(join(folder, '..next'), join(folder, '..data'))
  await until(async () => (await shown('v2.example')) === 'hooks.customer.example, v2.example')
})

test('C4 a folder that cannot be listed for a while keeps the pair that was in it; one that never could is skipped', async () => {
  const [below, away] = [join(folder, 'below'), join(folder, '.away')]
  await mkdir(below)
  await put('below/tls', ['hooks.customer.example'])
  // A link to itself is something that even root cannot list.
  await symlink('never', join(folder, 'never'))
  await start()
  expect(errors).toEqual([])
  await rename(below, away)
  await symlink('below', below)
  expect(await server.reload()).toBe(false)
  expect(errors).toEqual([`the certificate ${join(below, 'tls.crt')} cannot be read (ELOOP)`])
  expect(await shown('hooks.customer.example')).toBe('hooks.customer.example')
  await rm(below)
  await rename(away, below)
  expect(await server.reload()).toBe(true)
  expect(await shown('hooks.customer.example')).toBe('hooks.customer.example')
  await rm(below, { recursive: true })
  await until(async () => (await shown('hooks.customer.example')).includes(DOMAIN))
})

test('of two certificates for one name, the one that expires later is shown, and nobody is warned about the other', async () => {
  await put('a', ['hooks.customer.example', 'later.example'], 60)
  await put('b', ['hooks.customer.example'], 30)
  await start()
  expect(await shown('hooks.customer.example')).toContain('later.example')
  const { validToDate } = new X509Certificate(await readFile(join(folder, 'a.crt')))
  expect(server.stats().certificates.hosts).toBe(validToDate.getTime())
})

test('a server starts with a broken certificate and logs it; without the folder it does not start', async () => {
  await writeFile(join(folder, 'one.crt'), 'nonsense')
  await put('two', ['two.example'])
  await start()
  expect(errors).toEqual([`the key ${join(folder, 'one.key')} cannot be read (ENOENT)`])
  expect(await shown('two.example')).toBe('two.example')
  await expect(CertificateFolder.open(join(folder, 'none'), noLogger)).rejects.toThrow('ENOENT')
})

test('C4 a certificate without a host is not used', async () => {
  await put('none', ['192.0.2.1'])
  await start()
  expect(errors).toEqual([`the certificate ${join(folder, 'none.crt')} names no host`])
})

test('more than 1,000 certificates are refused', async () => {
  for (let i = 0; i <= 1000; i++) await writeFile(join(folder, `${i}.crt`), '')
  await expect(CertificateFolder.open(folder, noLogger)).rejects.toThrow('there are 1001 certificates')
})

test("the listener's OCSP response is not stapled to another certificate", async () => {
  await put('one', ['hooks.customer.example'])
  const made = await makeWorld()
  const ocsp = Buffer.from('30030a0100', 'hex')
  const tls = { cert: made.server.certificate, key: made.server.key, ocsp }
  await start({ public: { port: 0, tls, tlsFolder: folder } })
  const stapled = async (servername: string) => {
    const { host, port } = server.publicAddress!
    const socket = connect({ host, port, servername, rejectUnauthorized: false, requestOCSP: true })
    let heard: Buffer | null = null
    socket.on('OCSPResponse', (bytes: Buffer | null) => {
      heard = bytes
    })
    await once(socket, 'secureConnect')
    socket.destroy()
    return heard as Buffer | null
  }
  expect([await stapled(`a.${DOMAIN}`), await stapled('hooks.customer.example')]).toEqual([ocsp, null])
})
