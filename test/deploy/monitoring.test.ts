/**
 * `deploy/monitoring`: rules that a real Prometheus accepts, alerts that fire when they should, and a runbook for each.
 */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { DASHBOARDS } from '../../scripts/docs/dashboards.ts'
import { ADMIN, useMachine } from '../cli/machine.ts'
import { needs } from '../support/needs.ts'
import { Prometheus } from '../support/prometheus.ts'
import { until } from '../support/until.ts'

const RULES = 'deploy/monitoring/rules.yaml'
const text = readFileSync(RULES, 'utf8')

interface Rule {
  readonly record?: string
  readonly alert?: string
  readonly expr: string
  readonly labels?: { readonly severity: string }
  readonly annotations?: Readonly<Record<'summary' | 'description' | 'runbook', string>>
}

const rules = (parse(text) as { groups: { rules: Rule[] }[] }).groups.flatMap(group => group.rules)
const alerts = rules.filter(({ alert }) => alert !== undefined)

describe('texts', () => {
  const runbooks = readFileSync('docs/runbooks.md', 'utf8')
  const sections = [...runbooks.matchAll(/^## (.+)$/gm)].map(([, name]) => name)

  test('each alert has its runbook, in the same order, and each runbook its alert', () => {
    expect(sections).toEqual(alerts.map(({ alert }) => alert))
  })

  test.each(alerts.map(rule => [rule.alert!, rule] as const))('%s says what, why and where to look', (alert, rule) => {
    expect(rule.labels?.severity).toMatch(/^(?:critical|warning)$/)
    expect(rule.annotations?.summary).toMatch(/\w/)
    expect(rule.annotations?.description).toMatch(/\w.*\.$/)
    expect(rule.annotations?.runbook).toBe(`docs/runbooks.md#${alert.toLowerCase()}`)
  })

  test('no query adds up what each server of a shared inbox reports', () => {
    const queries = [
      ...rules.map(({ expr }) => expr),
      ...DASHBOARDS.inbox!.flatMap(panel => Object.keys(panel.queries)),
    ]
    const shared = queries.filter(query => /sallyport_inbox_(?:messages|bytes|oldest_age_seconds)/.test(query))
    expect(shared).toHaveLength(4)
    expect(shared.filter(query => /\b(?:sum|avg|count)\b/.test(query))).toEqual([])
  })

  test('each alert is named by a Prometheus test', () => {
    const tests = readFileSync('deploy/monitoring/rules.test.yaml', 'utf8')
    const fired = [...tests.matchAll(/alertname="(\w+)"/g)].map(([, name]) => name)
    expect(fired).toEqual(alerts.map(({ alert }) => alert))
  })
})

describe.runIf(needs('prometheus'))('Prometheus', () => {
  const promtool = (...words: string[]) => execFileSync('promtool', words, { encoding: 'utf8', stdio: 'pipe' })

  test('accepts the files, and its own tests of the rules pass', { tags: ['slow'] }, () => {
    promtool('check', 'config', '--syntax-only', 'deploy/monitoring/prometheus.yaml')
    expect(promtool('check', 'rules', RULES)).toContain(`${rules.length} rules found`)
    expect(promtool('test', 'rules', 'deploy/monitoring/rules.test.yaml')).toContain('SUCCESS')
  })

  describe('beside server, client and router', () => {
    const machine = useMachine()
    const { file } = machine

    /** Only with a directory, or once somebody was refused. */
    const ELSEWHERE = /directory|replicas|handshakes_refused/

    test("every metric in rules, dashboards and pages exists, and our own failures are told from the application's", {
      tags: ['slow'],
    }, async () => {
      const health = ['--health.listen', '127.0.0.1:0', ...ADMIN]
      writeFileSync(file('empty.yaml'), 'routes: []\n')
      const upstream = machine.start(['router', '--listen', '127.0.0.1:0', '--routes', file('empty.yaml'), ...ADMIN])
      const fine = await upstream.address('router')
      writeFileSync(
        file('routes.yaml'),
        `routes:
  - { name: fine, match: { path: /fine }, target: "http://${fine}" }
  - { name: down, match: { path: /down }, target: "http://127.0.0.1:1" }
`,
      )
      const router = machine.start(['router', '--listen', '127.0.0.1:0', '--routes', file('routes.yaml'), ...health])
      const server = machine.start(
        machine.serverArgs('--inbox', `sqlite:${file('inbox.db')}`, '--health.listen', '127.0.0.1:0'),
      )
      await machine.writeToken('token', { runtime: 'demo' })
      const client = machine.start([
        ...['client', '--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem'), ...health],
        ...['--token.file', file('token'), '--routes', file('routes.yaml')],
      ])
      const components = { 'sallyport-server': server, 'sallyport-client': client, 'sallyport-router': router }
      const jobs: Record<string, string> = {}
      for (const [job, component] of Object.entries(components)) jobs[job] = await component.address('health')
      await client.line(line => line.msg === 'connected')

      const prometheus = await Prometheus.start(jobs, RULES)
      const doors = [await server.address('public'), await router.address('router')]
      const ask = async (door: string, path: string) => {
        const headers = { host: 'demo.tunnels.localhost' }
        const sent = request(`http://${door}${path}`, { headers, agent: false }).end()
        const [response] = await once(sent, 'response')
        await once(response.resume(), 'end')
        return response.statusCode as number
      }
      try {
        const failed = 'count by (job) (job:sallyport_failures:ratio5m > 0)'
        await until(async () => {
          for (const door of doors) expect([await ask(door, '/fine'), await ask(door, '/down')]).toEqual([404, 502])
          return (await prometheus.query(failed)).length === 3
        })
        const codes =
          'sum by (job, error_type) (rate(sallyport_exchanges_total{http_response_status_code=~"5..", error_type!=""}[5m]))'
        const seen = (await prometheus.query(codes)).map(({ metric }) => `${metric.job} ${metric.error_type}`)
        expect(seen.sort()).toEqual(
          Object.keys(jobs)
            .sort()
            .map(job => `${job} upstream-refused`),
        )

        for (const { record } of rules) {
          if (record !== undefined) expect(await prometheus.query(record), record).not.toEqual([])
        }
        const pages = ['docs/runbooks.md', 'docs/monitoring.md'].map(page => readFileSync(page, 'utf8'))
        const selectors = [text, ...pages].flatMap(
          page => page.match(/(?<!:)\b(?:sallyport|http|nodejs|process)_[a-z0-9_]+_[a-z0-9_]+(?:\{[^{}\n]+\})?/g) ?? [],
        )
        expect(new Set(selectors).size).toBeGreaterThan(20)
        const exposed = (
          await Promise.all(Object.values(jobs).map(at => fetch(`http://${at}/metrics`).then(r => r.text())))
        ).join()
        for (const selector of new Set(selectors)) {
          if (ELSEWHERE.test(selector)) expect(exposed).toContain(`# HELP ${selector} `)
          else expect(await prometheus.query(selector), selector).not.toEqual([])
        }
        for (const { expr } of rules) await prometheus.query(expr)
        for (const panel of Object.values(DASHBOARDS).flat()) {
          for (const query of Object.keys(panel.queries)) {
            const asked = query.replaceAll('$job', 'sallyport-.*').replaceAll('$__rate_interval', '5m')
            const samples = await prometheus.query(asked)
            if (!ELSEWHERE.test(asked)) expect(samples, `${panel.title}: ${asked}`).not.toEqual([])
          }
        }
      } finally {
        await prometheus.stop()
      }
    })
  })
})
