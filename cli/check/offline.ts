/** What the files alone tell, beyond what a component refuses to start with. */
import type { Probe } from '../../protocol/base/probe.ts'
import type { ClientConfig } from '../config/client.ts'
import type { RouterConfig } from '../config/router.ts'
import type { ServerConfig } from '../config/server.ts'
import { probeCertificate } from './certificates.ts'
import { probeSecretFiles } from './files.ts'

export async function clientFiles(config: ClientConfig): Promise<Probe[]> {
  const { 'token.file': token, 'tls.key': key, 'inbox.key.file': inbox, 'tls.cert': certificate } = config
  return [
    ...(await probeSecretFiles({ 'token.file': token, 'tls.key': key, 'inbox.key.file': inbox })),
    ...(certificate === undefined ? [] : [await probeCertificate('tls.cert', certificate, [])]),
  ]
}

export async function serverFiles(config: ServerConfig): Promise<Probe[]> {
  const { 'public.tls.cert': edge, 'control.tls.cert': control, 'control.host': host, domain = [] } = config
  const names = domain.map(name => `*.${name}`)
  return [
    ...(await probeSecretFiles({
      'public.tls.key': config['public.tls.key'],
      'control.tls.key': config['control.tls.key'],
      'peer.tls.key': config['peer.tls.key'],
    })),
    ...(edge === undefined ? [] : [await probeCertificate('public.tls.cert', edge, names)]),
    ...(control === undefined
      ? []
      : [await probeCertificate('control.tls.cert', control, host === undefined ? [] : [host])]),
  ]
}

export async function routerFiles(config: RouterConfig): Promise<Probe[]> {
  const { 'tls.key': key, 'tls.cert': certificate } = config
  return [
    ...(await probeSecretFiles({ 'tls.key': key })),
    ...(certificate === undefined ? [] : [await probeCertificate('tls.cert', certificate, [])]),
  ]
}
