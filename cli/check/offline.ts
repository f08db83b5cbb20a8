/** Checks of the files alone, beyond what a component refuses to start with. */
import type { Probe } from '../../protocol/base/probe.ts'
import { secretFilesOf } from '../../router/table-file.ts'
import { findPairs } from '../../server/certificate-folder.ts'
import { PEER_NAME } from '../../server/peer/tls.ts'
import { loadTls } from '../../server/tls.ts'
import type { ClientConfig } from '../config/client.ts'
import type { RouterConfig } from '../config/router.ts'
import type { ServerConfig } from '../config/server.ts'
import { SECRET_FILE } from '../config/setting.ts'
import { isFor, probeCertificate, readLeaf } from './certificates.ts'
import { probeSecretFiles } from './files.ts'

/** Checks the files of a client or a router. */
export async function filesWithRoutes(config: ClientConfig | RouterConfig): Promise<Probe[]> {
  const secrets = [...secretsOf(config), ...(await secretsOfRoutes(config))]
  return [...(await probeSecretFiles(secrets)), ...(await probeCertificates(config, { 'tls.cert': [] }))]
}

export async function serverFiles(config: ServerConfig): Promise<Probe[]> {
  const { 'control.host': host, domain = [], 'public.tls.folder': folder, 'control.tls.cert': control } = config
  const hosts = host === undefined ? [] : [host]
  const pairs = folder === undefined ? [] : (await findPairs(folder)).pairs
  // The server takes these before its own certificate.
  const leaves = await Promise.all(pairs.map(({ cert }) => readLeaf(cert).catch(() => undefined)))
  const isInFolder = (name: string) => leaves.some(leaf => leaf !== undefined && isFor(leaf, name))
  const callers = domain.map(name => `*.${name}`).filter(name => !isInFolder(name))
  const names = {
    // Without a certificate of its own, the control endpoint has this one.
    'public.tls.cert': [...callers, ...(control === undefined ? hosts : [])],
    'control.tls.cert': hosts,
    'peer.tls.cert': [PEER_NAME],
  }
  const keys = pairs.map(({ key }) => ['public.tls.folder', key] as const)
  return [
    ...(await probeSecretFiles([...secretsOf(config), ...keys])),
    ...(await probeCertificates(config, names)),
    ...(await Promise.all(pairs.map(pair => probePair('public.tls.folder', pair)))),
    ...(folder !== undefined && pairs.length === 0 ? [noPair(folder)] : []),
  ]
}

function noPair(folder: string): Probe {
  const expected = 'NAME.crt and NAME.key, or folders with tls.crt and tls.key'
  const about = { code: 'certificate', what: `--public.tls.folder ${folder}`, expected }
  const hint = 'Until then, callers of every host get --public.tls.cert.'
  return { ...about, status: 'warn', found: 'no certificate in it', hint }
}

/** Checks a certificate of the folder. One that the server would ignore fails. */
async function probePair(flag: string, { cert, key }: { cert: string; key: string }): Promise<Probe> {
  try {
    await loadTls({ cert: { file: cert }, key: { file: key } })
    return await probeCertificate(flag, cert, [])
  } catch (error) {
    const about = { code: 'certificate', what: `--${flag} ${cert}`, expected: 'a certificate and its key' }
    return { ...about, status: 'fail', found: (error as Error).message, hint: 'Replace it: the server ignores it.' }
  }
}

type ByFlag = (readonly [flag: string, file: string])[]

function secretsOf(config: object): ByFlag {
  return Object.entries(config).filter(
    (entry): entry is [string, string] => SECRET_FILE.test(entry[0]) && entry[1] !== undefined,
  )
}

async function secretsOfRoutes({ routes }: Pick<RouterConfig, 'routes'>): Promise<ByFlag> {
  const files = routes === undefined ? [] : await secretFilesOf(routes)
  return files.map(file => ['routes', file] as const)
}

/** `names`: for each setting, the names that its certificate must cover. */
async function probeCertificates<Name extends string>(
  config: Readonly<Partial<Record<NoInfer<Name>, string | undefined>>>,
  names: Readonly<Record<Name, readonly string[]>>,
): Promise<Probe[]> {
  const given = (Object.keys(names) as Name[]).flatMap(flag => {
    const file = config[flag]
    return file === undefined ? [] : [[flag, file] as const]
  })
  return await Promise.all(given.map(([flag, file]) => probeCertificate(flag, file, names[flag])))
}
