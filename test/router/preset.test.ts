import { describe, expect, it } from 'vitest'
import { createRouter, gitopsRuntime } from '../../router/index.ts'
import { recordingLogger } from './support.ts'

const router = (namespaces: string[]) =>
  createRouter({ routes: gitopsRuntime({ namespaces, corsOrigins: ['https://ui'] }) })
const ask = (url: string, namespaces = ['demo']) => router(namespaces).match({ url })

describe('the preset of the GitOps runtime', () => {
  it('sends App-Proxy on with its prefix, and workflows without', () => {
    expect(ask('/app-proxy/api/graphql')).toMatchObject({
      target: 'http://cap-app-proxy:3017',
      path: '/app-proxy/api/graphql',
    })
    expect(ask('/workflows/a?b=%2f')).toMatchObject({ target: 'http://argo-server:2746', path: '/a?b=%2f' })
    expect(ask('/workflows/')).toMatchObject({ path: '/' })
  })

  it('sends webhooks to the event source of an allowed namespace, with the whole path and query', () => {
    expect(ask('/webhooks/demo/push/x?y')).toMatchObject({
      target: 'http://push-eventsource-svc.demo.svc.cluster.local:80',
      path: '/webhooks/demo/push/x?y',
      captures: { namespace: 'demo', eventSource: 'push' },
    })
    expect(ask('/webhooks/kube-system/push')).toMatchObject({
      outcome: 'refuse',
      status: 404,
      explanation: 'route "webhooks" matches, but allow.namespace is demo, and not "kube-system"',
    })
    expect(ask('/webhooks/demo/Push')).toMatchObject({ outcome: 'refuse', status: 404 })
    expect(ask('/app-proxy/x/webhooks/demo/push')).toMatchObject({ route: 'app-proxy' })
    expect(ask('/x/webhooks/demo/push')).toMatchObject({ status: 404, code: 'no-route' })
  })

  it('answers health checks itself, and knows nothing else', () => {
    expect(ask('/readyz')).toMatchObject({ outcome: 'answer', status: 200 })
    expect(ask('/healthz')).toMatchObject({ outcome: 'answer', status: 200 })
    expect(ask('/')).toMatchObject({ outcome: 'refuse', code: 'no-route' })
  })

  it('sends webhooks to the listed event sources only, whether or not a server stores them', () => {
    for (const inbox of ['off', 'fallback'] as const) {
      const router = createRouter({
        routes: gitopsRuntime({ namespaces: ['demo'], eventSources: ['push', 'release'], inbox }),
      })
      expect(router.match({ url: '/webhooks/demo/release', method: 'POST' })).toMatchObject({ outcome: 'forward' })
      for (const method of ['POST', 'GET'])
        expect(router.match({ url: '/webhooks/demo/invented', method })).toMatchObject({
          outcome: 'refuse',
          status: 404,
        })
    }
  })

  it('sends webhooks to no event source if the list is empty', () => {
    const router = createRouter({ routes: gitopsRuntime({ namespaces: ['demo'], eventSources: [] }) })
    expect(router.match({ url: '/webhooks/demo/push', method: 'POST' })).toMatchObject({
      outcome: 'refuse',
      explanation: expect.stringContaining('allow.eventSource is empty'),
    })
  })

  it('answers webhooks with 404 and the reason if no namespaces are set', () => {
    const { logger, lines } = recordingLogger()
    gitopsRuntime({ logger })
    expect(lines).toEqual(['warn no namespaces are allowed: webhooks are answered with 404 (set preset.namespaces)'])
    expect(ask('/webhooks/demo/push', [])).toMatchObject({
      status: 404,
      explanation: 'route "webhooks" matches, but allow.namespace is empty, and not "demo"',
    })
  })

  it('lets a server keep webhooks if that is set, and accepts other methods as before', () => {
    for (const inbox of [undefined, 'off', 'fallback', 'always'] as const) {
      const router = createRouter({ routes: gitopsRuntime({ namespaces: ['demo'], inbox }) })
      for (const method of ['POST', 'GET', 'PUT']) {
        expect(router.match({ url: '/webhooks/demo/push/x?y', method }), method).toMatchObject({
          outcome: 'forward',
          target: 'http://push-eventsource-svc.demo.svc.cluster.local:80',
        })
        expect(router.match({ url: '/webhooks/other/push', method }).status).toBe(404)
      }
      const kept = inbox === 'fallback' || inbox === 'always'
      const rule = { route: 'webhooks', path: '/webhooks/{namespace}/{eventSource}', methods: ['POST'], mode: inbox }
      expect(router.inbox()).toEqual(kept ? [rule] : [])
    }
  })

  it('publishes its CORS policy by path', () => {
    expect(router([]).cors()).toMatchObject([
      { path: '/app-proxy', cors: { origins: ['https://ui'], credentials: true } },
    ])
  })
})
