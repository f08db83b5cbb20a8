/** What an installation brings along, and what may run during it. A new name in these lists is a decision. */
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { describe, expect, test } from 'vitest'

const read = (name: string) => JSON.parse(readFileSync(resolve(import.meta.dirname, '../..', name), 'utf8'))

interface Locked {
  readonly version?: string
  readonly resolved?: string
  readonly integrity?: string
  readonly dev?: boolean
  readonly optional?: boolean
  readonly devOptional?: boolean
  readonly link?: boolean
  readonly hasInstallScript?: boolean
  readonly dependencies?: Record<string, string>
}

const manifest = read('package.json') as Record<string, Record<string, string>>
const locked = Object.entries(read('package-lock.json').packages as Record<string, Locked>).filter(
  ([path, one]) => path.includes('node_modules/') && one.link !== true,
)
const name = (path: string) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)

const NAMES = [
  '@opentelemetry/api',
  '@peculiar/asn1-asym-key',
  '@peculiar/asn1-cms',
  '@peculiar/asn1-csr',
  '@peculiar/asn1-ecc',
  '@peculiar/asn1-pfx',
  '@peculiar/asn1-pkcs8',
  '@peculiar/asn1-pkcs9',
  '@peculiar/asn1-rsa',
  '@peculiar/asn1-schema',
  '@peculiar/asn1-x509',
  '@peculiar/asn1-x509-attr',
  '@peculiar/asn1-x509-post-quantum',
  '@peculiar/utils',
  '@peculiar/x509',
  '@pinojs/redact',
  '@prometheus-io/client',
  '@redis/client',
  'asn1js',
  'atomic-sleep',
  'bintrees',
  'jose',
  'on-exit-leak-free',
  'pino',
  'pino-abstract-transport',
  'pino-std-serializers',
  'process-warning',
  'pvtsutils',
  'pvutils',
  'quick-format-unescaped',
  'real-require',
  'safe-stable-stringify',
  'sonic-boom',
  'split2',
  'tdigest',
  'thread-stream',
  'tslib',
  'tsyringe',
  'undici',
  'ws',
  'yaml',
]

describe('production dependencies', () => {
  test('that we ask for', () => {
    expect(Object.keys(manifest.dependencies ?? {})).toEqual([
      '@peculiar/x509',
      '@prometheus-io/client',
      '@redis/client',
      'jose',
      'pino',
      'undici',
      'ws',
      'yaml',
    ])
    expect(Object.keys(manifest.optionalDependencies ?? {})).toEqual([
      'autocannon',
      'bufferutil',
      'node-forge',
      'pg',
      'smol-toml',
    ])
  })

  test('that they bring along', () => {
    const production = locked
      .filter(([, one]) => !one.dev && !one.optional && !one.devOptional)
      .map(([path]) => name(path))
    expect([...new Set(production)].sort()).toEqual(NAMES)
  })
})

describe('installation', () => {
  test('runs no script of ours', () => {
    const { scripts = {} } = manifest
    const atInstallation = [
      'preinstall',
      'install',
      'postinstall',
      'prepare',
      'prepublish',
      'preprepare',
      'postprepare',
    ]
    expect(atInstallation.filter(script => script in scripts)).toEqual([])
  })

  test("runs no script but bufferutil's, which is optional and comes prebuilt", () => {
    const withScripts = locked.filter(([, one]) => one.hasInstallScript && !one.dev).map(([path]) => name(path))
    expect(withScripts.sort()).toEqual(['bufferutil'])
  })

  test('installs what the lockfile names, from a registry, by its hash', () => {
    const loose = locked.filter(([, one]) => one.integrity?.startsWith('sha512-') !== true)
    expect(loose.map(([path]) => path)).toEqual([])
    const elsewhere = locked.filter(([, one]) => one.resolved !== undefined && !one.resolved.startsWith('https://'))
    expect(elsewhere.map(([path]) => path)).toEqual([])
  })
})
