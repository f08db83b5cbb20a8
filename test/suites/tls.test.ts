/** TLS at both ends: Mozilla's server-side guidelines as handshakes, and the scanners' findings. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ConnectionOptions, connect, getCiphers, type SecureVersion } from 'node:tls'
import forge from 'node-forge'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { long, needs, program, vectors } from '../support/needs.ts'
import { runProgram, score } from './program.ts'
import { type SuiteTarget, startTarget } from './target.ts'

let target: SuiteTarget
/** The same edge with a certificate of the other kind that the guidelines know. */
let withRsa: SuiteTarget
beforeAll(async () => {
  target = await startTarget()
  withRsa = await startTarget(() => ({ public: { port: 0, tls: rsaCertificate() } }))
})
afterAll(() => Promise.all([target.stop(), withRsa.stop()]))

function rsaCertificate(): { cert: string; key: string } {
  const { publicKey, privateKey } = forge.pki.rsa.generateKeyPair(2048)
  const certificate = forge.pki.createCertificate()
  certificate.publicKey = publicKey
  certificate.serialNumber = '01'
  certificate.validity.notBefore = new Date(Date.now() - 60_000)
  certificate.validity.notAfter = new Date(Date.now() + 3_600_000)
  certificate.setSubject([{ name: 'commonName', value: '127.0.0.1' }])
  certificate.setIssuer([{ name: 'commonName', value: '127.0.0.1' }])
  certificate.sign(privateKey, forge.md.sha256.create())
  return { cert: forge.pki.certificateToPem(certificate), key: forge.pki.privateKeyToPem(privateKey) }
}

interface Guideline {
  readonly openssl_ciphers: string[]
  readonly openssl_ciphersuites: string[]
  readonly tls_versions: string[]
  readonly tls_curves: string[]
}

function guideline(level: 'modern' | 'intermediate'): Guideline {
  const file = join(vectors!, 'mozilla/server-side-tls-conf-5.0.json')
  return JSON.parse(readFileSync(file, 'utf8')).configurations[level]
}

/** Whether a handshake succeeds; false, too, for what this OpenSSL cannot offer. */
async function shakes(port: number, options: ConnectionOptions): Promise<boolean> {
  try {
    const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false, minVersion: 'TLSv1', ...options })
    // With TLS 1.3 the client is done before the server has decided: only its first bytes mean yes.
    socket.once('secureConnect', () => socket.write('GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'))
    const said = once(socket, 'data').then(() => true)
    const failed = new Promise<boolean>(resolve => socket.once('close', () => resolve(false)))
    socket.on('error', () => {})
    const outcome = await Promise.race([said, failed]).catch(() => false)
    socket.destroy()
    return outcome
  } catch {
    return false
  }
}

async function accepted<Name extends string>(
  port: number,
  names: readonly Name[],
  options: (name: Name) => ConnectionOptions,
): Promise<Name[]> {
  const found: Name[] = []
  for (const name of names) if (await shakes(port, options(name))) found.push(name)
  return found
}

const VERSIONS: readonly SecureVersion[] = ['TLSv1', 'TLSv1.1', 'TLSv1.2', 'TLSv1.3']
const versions = (port: number) =>
  accepted(port, VERSIONS, name => ({ minVersion: name, maxVersion: name, ciphers: 'ALL:@SECLEVEL=0' }))

const suites = getCiphers().map(name => name.toUpperCase())
const suites13 = suites.filter(name => name.startsWith('TLS_'))
const suites12 = suites.filter(name => !name.startsWith('TLS_'))
const ciphersuites = (port: number) => accepted(port, suites13, name => ({ minVersion: 'TLSv1.3', ciphers: name }))
const ciphers = (port: number) =>
  accepted(port, suites12, name => ({ maxVersion: 'TLSv1.2', ciphers: `${name}:@SECLEVEL=0` }))

/** As the guidelines spell them. */
const HYBRID = 'X25519MLKEM768'
const GROUPS =
  'X25519 prime256v1 secp384r1 secp521r1 X448 ffdhe2048 ffdhe3072 ffdhe4096 brainpoolP256r1 secp256k1'.split(' ')
const POST_QUANTUM = [HYBRID, 'SecP256r1MLKEM768', 'SecP384r1MLKEM1024', 'MLKEM512', 'MLKEM768', 'MLKEM1024']
const groups = (port: number, of: readonly string[]) =>
  accepted(port, of, name => ({
    minVersion: 'TLSv1.3',
    ecdhCurve: name,
  }))

const sorted = (names: readonly string[]) => [...names].sort()

describe.runIf(needs('vectors'))("Mozilla's guidelines 5.0", () => {
  test('the control endpoint is equal to modern', async () => {
    const modern = guideline('modern')
    const port = target.controlPort
    expect(await versions(port)).toEqual(modern.tls_versions)
    expect(sorted(await ciphersuites(port))).toEqual(sorted(modern.openssl_ciphersuites))
    expect(await ciphers(port)).toEqual([])
    expect(sorted(await groups(port, GROUPS))).toEqual(sorted(modern.tls_curves))
  })

  test.each([
    ['ECDSA', () => target.edgePort],
    ['RSA', () => withRsa.edgePort],
  ])('the edge with a certificate of %s is within intermediate', async (kind, port) => {
    const intermediate = guideline('intermediate')
    const found = await ciphers(port())
    expect(await versions(port())).toEqual(intermediate.tls_versions)
    expect(sorted(await ciphersuites(port()))).toEqual(sorted(intermediate.openssl_ciphersuites))
    // Those with finite-field Diffie-Hellman are left out.
    expect(sorted(found)).toEqual(sorted(intermediate.openssl_ciphers.filter(name => name.startsWith(`ECDHE-${kind}`))))
    const curves = intermediate.tls_curves.map(name => (name === 'secp256r1' ? 'prime256v1' : name))
    expect(sorted(await groups(port(), GROUPS))).toEqual(sorted(curves))
  })

  test('of the groups newer than the guidelines, only the hybrid of X25519 is there', async () => {
    for (const port of [target.controlPort, target.edgePort]) {
      expect([[], [HYBRID]]).toContainEqual(await groups(port, POST_QUANTUM))
    }
    score("Mozilla's guidelines 5.0", 'control equal to modern, edge within intermediate (ECDSA and RSA)')
  })
})

describe.runIf(needs('openssl'))('TLS 1.2', () => {
  test.each([
    ['ECDSA', () => target.edgePort],
    ['RSA', () => withRsa.edgePort],
  ])('a caller cannot make us renegotiate (%s)', async (_kind, port) => {
    const client = spawn(program('openssl'), ['s_client', '-tls1_2', '-connect', `127.0.0.1:${port()}`])
    let said = ''
    for (const stream of [client.stdout, client.stderr]) stream.on('data', bytes => (said += bytes))
    const closed = once(client, 'close')
    while (!said.includes('Verify return code')) await once(client.stdout, 'data')
    // A line with only this letter asks for a new handshake.
    client.stdin.end('R\n')
    await closed
    expect(said).toContain('RENEGOTIATING')
    expect(said).toContain('no renegotiation')
  })
})

describe.runIf(needs('sslscan'))('sslscan', () => {
  const scan = async (port: number) => {
    const { out } = await runProgram(program('sslscan'), ['--no-colour', '--xml=-', `127.0.0.1:${port}`], 60_000)
    const all = (pattern: RegExp) => [...out.matchAll(pattern)].map(([, ...found]) => found.join(' '))
    return {
      protocols: all(/<protocol type="(\w+)" version="([\d.]+)" enabled="1"/g),
      strengths: all(/<cipher status="\w+" sslversion="[^"]*" bits="(\d+)"/g).map(Number),
      groups: all(/<group [^>]*name="([^"]*)"/g),
      heartbleed: all(/<heartbleed sslversion="[^"]*" vulnerable="1"/g),
      renegotiation: all(/<renegotiation supported="(\d)" secure="(\d)"/g),
      compression: all(/<compression supported="1"/g),
      signature: all(/<signature-algorithm>([^<]*)</g),
    }
  }

  test.each([
    ['edge', () => target.edgePort, ['tls 1.2', 'tls 1.3']],
    ['control', () => target.controlPort, ['tls 1.3']],
  ])('%s', async (name, port, protocols) => {
    const found = await scan(port())
    expect(found).toMatchObject({ protocols, heartbleed: [], compression: [], signature: ['ecdsa-with-SHA256'] })
    expect(Math.min(...found.strengths)).toBeGreaterThanOrEqual(128)
    expect(found.groups.filter(group => !/^(x25519|secp256r1|secp384r1)\b/.test(group))).toEqual([])
    expect(found.renegotiation).toEqual(['0 0'])
    score('sslscan', `${name}: no finding`)
  })
})

/** What our own CA causes, what a scan of an address cannot know, and where the guidelines differ. */
const EXPLAINED = new Set([
  'engine_problem',
  'cert_chain_of_trust',
  'cert_revocation',
  'cert_expirationStatus',
  'cert_extlifeSpan',
  'DNS_CAArecord',
  'OCSP_stapling',
  // The guidelines: server_preferred_order false, since all suites are good.
  'cipher_order',
  // What the service behind the edge tells browsers; the control endpoint refuses browsers.
  'HSTS',
])

describe.runIf(long && needs('testssl'))('testssl.sh', () => {
  test.each([
    ['edge', () => target.edgePort],
    ['control', () => target.controlPort],
  ])('%s: no finding of LOW or above except for our own CA', { timeout: 900_000 }, async (name, port) => {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-testssl-'))
    const report = join(folder, 'report.json')
    const args = ['--severity', 'LOW', '--warnings', 'off', '--color', '0', '--jsonfile', report]
    await runProgram(program('testssl'), [...args, `127.0.0.1:${port()}`], 800_000)
    const findings = JSON.parse(await readFile(report, 'utf8')) as { id: string; severity: string; finding: string }[]
    await rm(folder, { recursive: true })
    const real = findings.filter(({ id, severity }) => severity !== 'WARN' && !EXPLAINED.has(id.replace(/ <.*/, '')))
    score('testssl.sh', `${name}: ${real.length} findings besides ${findings.length - real.length} explained`)
    expect(real).toEqual([])
  })
})
