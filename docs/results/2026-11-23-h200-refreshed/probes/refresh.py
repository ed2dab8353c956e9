"""refresh.py MODE...: GPU time of BERT's graph in a process of its own, 5 ms apart, over time: alone, after setting something else up, beside a training, after it."""
import os, sys, json, time, statistics as st
ROOT="/tmp/tally-bundle"
sys.path[:0]=[ROOT+"/bench/colocation", ROOT+"/bench/support"]
if sys.argv[1] in ("high", "low"):
    from worker import Lines
    lines=Lines()
    import torch, training_models
    if sys.argv[1]=="high":
        import inference_models
        svc=inference_models.build("bert-graph")
        a,b=(torch.cuda.Event(enable_timing=True) for _ in range(2))
        keep=[]
        lines.say({"ready":True})
        while True:
            q=lines.poll(None); out=[]
            if q.get("set up"): keep.append(training_models.build(q["set up"])); torch.cuda.synchronize()
            for i in range(q["n"]):
                a.record()
                with torch.inference_mode(): svc.run()
                b.record(); torch.cuda.synchronize()
                out.append(a.elapsed_time(b)*1e3)
                time.sleep(0.005)
            lines.say({"us":out})
    tr=training_models.build(sys.argv[2])
    lines.say({"ready":True})
    while True:
        q=lines.poll(None); end=time.monotonic()+q["seconds"]; n=0
        while time.monotonic()<end: tr.step()(); n+=1
        torch.cuda.synchronize()
        lines.say({"steps":n})
import modes, ways
from child import Child
def measure(mode):
  with modes.enter(ROOT, mode, False) as place:
    def start(role,kind,*more): return Child(place.command([sys.executable,os.path.abspath(__file__),role,*more],kind),role,{**os.environ,**place.environment(kind)})
    high=start("high","service"); high.answer(60)
    def blocks(label, count, **more):
        medians=[]
        for i in range(count):
            high.say(json.dumps({"n":50,**(more if i==0 else {})})); us=high.answer(60)["us"]; medians.append((round(st.median(us)),round(st.quantiles(us,n=100)[98])))
        print(f"{mode:32s} {label:36s} median/p99 of 50 each: "+" ".join(f"{m}/{p}" for m,p in medians),flush=True)
    blocks("alone",8)
    blocks("after building pointnet there, too",8,**{"set up":"pointnet"})
    for training in ("pointnet","resnet50"):
        low=start("low","training",training); low.answer(60)
        blocks(f"{training} is there",4)
        low.say(json.dumps({"seconds":6})); time.sleep(0.5)
        blocks(f"beside {training}",12)
        print(mode, training, low.answer(30)["steps"],"steps in 6 s",flush=True)
        blocks("then",4)
        low.end(5); time.sleep(0.3)
        blocks(f"{training} has left",4)
    high.end(5)
    if hasattr(place.way,"ctl"): print([(e["domain"],e.get("num_refreshes"),e["num_suspensions"],e["state"]) for e in place.way.ctl("executors")], place.way.log()[-500:],flush=True)
for m in sys.argv[1:]:
    try: measure(m)
    except Exception as e: print(m,"FAILED",repr(e)[:600],flush=True)
