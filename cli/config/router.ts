import { adminSettings, graceSetting, logSettings, routeSettings, tracingSettings } from './common.ts'
import * as kinds from './kinds.ts'
import { optional, setting, type Values } from './setting.ts'

/** Settings of `sallyport router`. */
export const routerSettings = {
  listen: setting(kinds.address, '127.0.0.1:8081', 'Address for an ingress or a tunnel client.'),
  'tls.cert': optional(kinds.file, 'Certificate chain (PEM). Without it, plain HTTP/1.1 and HTTP/2.'),
  'tls.key': optional(kinds.file, 'Private key of the certificate (PEM).'),
  ...routeSettings,
  'trusted-proxies': optional(
    kinds.list(kinds.cidr),
    'Peers whose X-Forwarded-For, -Proto, -Host and X-Request-Id (with tracing, also traceparent and tracestate) the router trusts: the ingress, the tunnel client.',
  ),
  ...tracingSettings,
  ...graceSetting,
  ...adminSettings(9092),
  ...logSettings,
}

export type RouterConfig = Values<typeof routerSettings>
