"""segments.py MODE...: of BERT's graph, layer by layer, alone and beside a training: where does the time go?"""
import os, sys, json, time, statistics as st
ROOT="/tmp/tally-x/tally-bundle"
sys.path[:0]=[ROOT+"/bench/colocation", ROOT+"/bench/support"]
if sys.argv[1] in ("high", "low"):
    from worker import Lines
    lines=Lines()
    import torch, training_models
    if sys.argv[1]=="high":
        import inference_models, stamps
        torch.zeros(1,device='cuda'); torch.cuda.synchronize(); S=stamps.Stamps(64); n=[0]
        def stamp():
            S.place.value=__import__("ctypes").addressof(S.stamps)+8*n[0]; n[0]+=1
            e=S.launches(S.function,1,1,1,1,1,1,0,torch.cuda.current_stream().cuda_stream,S.parameters,None); assert e==0,e
        torch.nn.modules.module.register_module_forward_hook(lambda m,i,o: stamp() if type(m).__name__=="BertLayer" else None)
        torch.manual_seed(0)
        with torch.device("cuda"): run, make = inference_models.NETWORKS["bert"]()
        static=tuple(p.cuda() for p in make())
        def once():
            n[0]=0; stamp(); run(*static); stamp()
        with torch.inference_mode():
            for _ in range(5): once()
            torch.cuda.synchronize()
            g,_=inference_models.captured(lambda *a: once(),())
        k=n[0]; a=torch.cuda.Event(enable_timing=True)
        lines.say({"ready":True})
        while True:
            q=lines.poll(None); rows=[]
            for i in range(q["n"]):
                g.replay(); torch.cuda.synchronize()
                v=[S.stamps[j] for j in range(k)]; rows.append([(y-x)/1e3 for x,y in zip(v,v[1:])])
                time.sleep(q["gap"])
            lines.say({"seg":[round(st.median(c),1) for c in zip(*rows)],"p90":[round(st.quantiles(c,n=10)[8],1) for c in zip(*rows)],"sum":round(st.median(map(sum,rows)),1),"p99":round(st.quantiles(map(sum,rows),n=100)[98],1)})
    tr=training_models.build(sys.argv[2])
    lines.say({"ready":True})
    while True:
        q=lines.poll(None); end=time.monotonic()+q["seconds"]; n=0
        while time.monotonic()<end: tr.step()(); n+=1
        torch.cuda.synchronize(); lines.say({"steps":n})
import modes, ways
from child import Child
def measure(mode):
  with modes.enter(ROOT, mode, False) as place:
    def start(role,kind,*more): return Child(place.command([sys.executable,os.path.abspath(__file__),role,*more],kind),role,{**os.environ,**place.environment(kind)})
    high=start("high","service"); low=start("low","training","pointnet"); high.answer(60); low.answer(60)
    def block(label, gap, n=200):
        high.say(json.dumps({"n":n,"gap":gap})); r=high.answer(60)
        print(f"{mode:30s} {label:26s} gap {gap*1e3:3.1f} ms: whole {r['sum']} p99 {r['p99']}; median {r['seg'][:3]}; p90 {r['p90'][:3]}",flush=True)
    block("alone",0.002,100)
    low.say(json.dumps({"seconds":4})); time.sleep(0.5)
    for i in range(4): block(f"beside pointnet, {i+1}",0.002,200)
    print(mode, low.answer(30)["steps"],"steps in 4 s",flush=True)
    block("then",0.002,100)
    low.end(5); high.end(5)
    print([(e["domain"],e.get("num_refreshes"),e["num_suspensions"],e["state"]) for e in place.way.ctl("executors")],flush=True)
for m in sys.argv[1:]:
    try: measure(m)
    except Exception as e: print(m,"FAILED",repr(e)[:600],flush=True)
