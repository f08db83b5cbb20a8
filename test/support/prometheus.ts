import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { lastingPort } from './ports.ts'
import { until } from './until.ts'

/** One sample of an instant vector. */
export interface Sample {
  readonly metric: Readonly<Record<string, string>>
  readonly value: number
}

/** A real Prometheus of the test's own, which scrapes each second. */
export class Prometheus {
  readonly url: string
  readonly #folder: string
  readonly #child: ChildProcess

  /** `jobs`: an address by job. */
  static async start(jobs: Readonly<Record<string, string>>, rules: string): Promise<Prometheus> {
    const folder = mkdtempSync(join(tmpdir(), 'sallyport-prometheus-'))
    copyFileSync(rules, join(folder, 'rules.yaml'))
    const configuration = {
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: ['rules.yaml'],
      scrape_configs: Object.entries(jobs).map(([job_name, address]) => ({
        job_name,
        static_configs: [{ targets: [address] }],
      })),
    }
    writeFileSync(join(folder, 'prometheus.yaml'), stringify(configuration))
    const prometheus = new Prometheus(folder, await lastingPort())
    await until(() =>
      fetch(`${prometheus.url}/-/ready`).then(
        ({ ok }) => ok,
        () => false,
      ),
    )
    return prometheus
  }

  private constructor(folder: string, port: number) {
    this.#folder = folder
    this.url = `http://127.0.0.1:${port}`
    const flags = [
      '--config.file=prometheus.yaml',
      '--storage.tsdb.path=data',
      `--web.listen-address=127.0.0.1:${port}`,
    ]
    this.#child = spawn('prometheus', flags, { stdio: 'ignore', cwd: folder })
  }

  /** Throws with Prometheus' own words where the query is wrong. */
  async query(expression: string): Promise<Sample[]> {
    const response = await fetch(`${this.url}/api/v1/query`, {
      method: 'POST',
      body: new URLSearchParams({ query: expression }),
    })
    const { status, error, data } = (await response.json()) as {
      status: string
      error?: string
      data: { result: { metric: Record<string, string>; value: [number, string] }[] }
    }
    if (status !== 'success') throw new Error(`${expression}: ${error}`)
    return data.result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }))
  }

  async stop(): Promise<void> {
    const ended = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await ended
    rmSync(this.#folder, { recursive: true })
  }
}
